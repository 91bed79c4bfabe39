#include "runtime/shape.h"

#include <fmt/format.h>

#include <limits>

#include "runtime/checked_sizes.h"
#include "runtime/error.h"

namespace tessera {

Dims::Dims(const std::int64_t* values, std::size_t n) : n_(static_cast<int>(n)) {
  TS_CHECK(n <= static_cast<std::size_t>(kMax), "shape", "{} dims were given, at most {} are allowed", n,
           kMax);
  std::copy_n(values, n, v_.begin());
}

Dims Dims::filled(int n, std::int64_t value) {
  TS_CHECK(n >= 0 && n <= kMax, "shape", "{} dims were asked for, 0 to {} are allowed", n, kMax);
  Dims out;
  out.n_ = n;
  std::fill(out.begin(), out.end(), value);
  return out;
}

void Dims::push_back(std::int64_t value) {
  if (n_ == kMax) [[unlikely]]
    return insert(n_, value);  // refuses
  v_[static_cast<std::size_t>(n_++)] = value;
}

void Dims::insert(int at, std::int64_t value) {
  TS_CHECK(n_ < kMax, "shape", "one dim more than the {} of {} is not allowed, at most {} are", n_, str(),
           kMax);
  TS_CHECK(at >= 0 && at <= n_, "shape", "cannot insert at position {} of {}, allowed are 0 to {}", at, str(),
           n_);
  std::copy_backward(begin() + at, end(), end() + 1);
  v_[static_cast<std::size_t>(at)] = value;
  ++n_;
}

void Dims::erase(int at) {
  TS_CHECK(at >= 0 && at < n_, "shape", "cannot remove position {} of {}", at, str());
  std::copy(begin() + at + 1, end(), begin() + at);
  --n_;
}

std::size_t Dims::hash() const {
  auto seed = static_cast<std::size_t>(n_);
  for (std::int64_t value : *this) hash_combine(seed, static_cast<std::size_t>(value));
  return seed;
}

std::string Dims::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// The product of the sizes and `factor`; whether 64 bits hold it.
bool multiply(const Dims& sizes, std::int64_t factor, std::int64_t& n) {
  n = factor;
  bool fits = true;
  for (std::int64_t size : sizes) {
    // A size of 0 makes the product 0 whatever the others are, so an overflow before it does not matter.
    if (size == 0) {
      n = 0;
      return true;
    }
    fits = !__builtin_mul_overflow(n, size, &n) && fits;
  }
  return fits;
}

std::int64_t countable(const char* op, const Dims& sizes) {
  std::int64_t n = 0;
  TS_CHECK(multiply(sizes, 1, n), op, "{} has more elements than 64 bits count, at most {} are allowed",
           sizes.str(), kMost);
  return n;
}

}  // namespace

std::int64_t numel_of(const Dims& sizes) { return countable("shape", sizes); }

void check_countable(const char* op, const Dims& sizes) { countable(op, sizes); }

void check_storable(const char* op, const Dims& sizes, DType dtype) {
  std::int64_t n = 0;
  TS_CHECK(multiply(sizes, size_of(dtype), n), op,
           "{} of {} has more bytes than 64 bits count, at most {} are allowed", sizes.str(), name_of(dtype),
           kMost);
}

std::int64_t checked_sum(const char* op, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  TS_CHECK(!__builtin_add_overflow(a, b, &sum), op, "{} + {} is no size, at most {} is allowed", a, b, kMost);
  return sum;
}

std::int64_t checked_product(const char* op, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  TS_CHECK(!__builtin_mul_overflow(a, b, &product), op, "{} times {} is no size, at most {} is allowed", a, b,
           kMost);
  return product;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  for (int d = sizes.size() - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * std::max<std::int64_t>(sizes[d + 1], 1);
  return strides;
}

int wrap_dim(const char* op, std::int64_t dim, int ndim) {
  const int n = std::max(ndim, 1);
  TS_CHECK(dim >= -n && dim < n, op, "dim {} was given, a tensor of {} dims allows {} to {}", dim, ndim, -n,
           n - 1);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

bool broadcasts_to(const Dims& a, const Dims& to) {
  const int lead = to.size() - a.size();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < a.size(); ++d) fits = a[d] == 1 || a[d] == to[d + lead];
  return fits;
}

Dims broadcast_sizes(const char* op, const Dims& a, const Dims& b) {
  Dims out = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  const int shift = out.size() - shorter.size();
  for (int d = 0; d < shorter.size(); ++d) {
    const std::int64_t theirs = shorter[d];
    std::int64_t& ours = out[d + shift];
    if (ours == 1) {
      ours = theirs;
    } else {
      TS_CHECK(
          theirs == 1 || theirs == ours, op,
          "shapes {} and {} do not broadcast: counted from the end, dim {} is {} in one and {} in the other, "
          "allowed are equal sizes or 1",
          a.str(), b.str(), d - shorter.size(), ours, theirs);
    }
  }
  return out;
}

}  // namespace tessera
