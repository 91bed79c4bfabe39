// Sizes, strides, intervals and boxes: the integers that all layers speak.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Up to eight integers, one per tensor dim, without a heap allocation.
class Dims {
 public:
  static constexpr int kMax = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), values.size()) {}
  explicit Dims(std::span<const std::int64_t> values) : Dims(values.data(), values.size()) {}
  explicit Dims(const std::vector<std::int64_t>& values) : Dims(values.data(), values.size()) {}
  static Dims filled(int n, std::int64_t value);

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  std::int64_t& operator[](int i) { return v_[static_cast<std::size_t>(i)]; }
  std::int64_t operator[](int i) const { return v_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const { return v_.data(); }
  const std::int64_t* end() const { return v_.data() + n_; }
  std::int64_t* begin() { return v_.data(); }
  std::int64_t* end() { return v_.data() + n_; }
  std::int64_t back() const { return v_[static_cast<std::size_t>(n_ - 1)]; }
  void push_back(std::int64_t value);
  void insert(int at, std::int64_t value);
  void erase(int at);
  bool operator==(const Dims& o) const { return n_ == o.n_ && std::equal(begin(), end(), o.begin()); }
  std::span<const std::int64_t> span() const { return {v_.data(), static_cast<std::size_t>(n_)}; }
  std::vector<std::int64_t> vec() const { return {begin(), end()}; }
  std::size_t hash() const;
  // "[2, 3, 4]"
  std::string str() const;

 private:
  Dims(const std::int64_t* values, std::size_t n);
  std::array<std::int64_t, kMax> v_{};
  int n_ = 0;
};

std::int64_t numel_of(const Dims& sizes);
Dims contiguous_strides(const Dims& sizes);
// A dim counted from the end made to count from the front; refuses what is out of range (0-dim: -1 and 0).
int wrap_dim(const char* op, std::int64_t dim, int ndim);
// NumPy's and PyTorch's broadcasting of two shapes; refuses with the two shapes.
Dims broadcast_sizes(const char* op, const Dims& a, const Dims& b);
// Whether `a` may be stretched to `to`, which keeps its sizes.
bool broadcasts_to(const Dims& a, const Dims& to);

// [lo, hi) along one dim.
struct Interval {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  std::int64_t length() const { return hi - lo; }
  bool empty() const { return hi <= lo; }
  bool operator==(const Interval&) const = default;
};
inline Interval intersect(Interval a, Interval b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

// A box of the index space: one interval per dim.
struct Box {
  Dims lo;
  Dims extent;
  std::int64_t numel() const { return numel_of(extent); }
  bool operator==(const Box&) const = default;
};

// Some caches compare hashes alone, so small values must not meet: each step is a bijection of the value
// (splitmix64's finisher), and what differs in one bit differs in half of them.
inline void hash_combine(std::size_t& seed, std::size_t value) {
  std::uint64_t h = seed * 0x9e3779b97f4a7c15ULL + value;
  h = (h ^ (h >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  h = (h ^ (h >> 27U)) * 0x94d049bb133111ebULL;
  seed = h ^ (h >> 31U);
}

}  // namespace tessera
