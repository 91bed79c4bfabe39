// What the kernel tests share: random arrays with awkward strides, comparison with a reference in double, and
// a loop over the instruction sets that this machine has.
#pragma once
#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "ops/cpu/isa.h"
#include "runtime/array.h"

namespace tessera::kernel_tests {

using Random = std::mt19937_64;

// TESSERA_SEED, or from the clock.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("TESSERA_SEED");
    if (text != nullptr) return static_cast<std::uint64_t>(std::strtoull(text, nullptr, 10));
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) %
           1000000007U;
  }();
  return value;
}

inline std::int64_t pick(Random& random, std::int64_t lo, std::int64_t hi) {
  return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
}
inline bool coin(Random& random) { return pick(random, 0, 1) == 1; }

// An array of these sizes in memory of a random order of dims, with gaps, not starting at the storage's
// start.
inline Array awkward(const Dims& sizes, DType dtype, Random& random) {
  const int n = sizes.size();
  std::vector<int> order(static_cast<std::size_t>(n));
  for (int d = 0; d < n; ++d) order[static_cast<std::size_t>(d)] = d;
  if (coin(random)) std::shuffle(order.begin(), order.end(), random);
  Dims strides = Dims::filled(n, 1);
  std::int64_t next = pick(random, 0, 3) == 0 ? 2 : 1;
  for (int i = n - 1; i >= 0; --i) {
    const int d = order[static_cast<std::size_t>(i)];
    strides[d] = next;
    next = next * std::max<std::int64_t>(sizes[d], 1) + (pick(random, 0, 3) == 0 ? pick(random, 0, 3) : 0);
  }
  const std::int64_t offset = pick(random, 0, 5);
  return Array::full({next + offset}, 0.0, dtype).as_strided(sizes, strides, offset);
}

// Random values in an awkward layout; `expand` may give some dims stride 0.
inline Array random_array(const Dims& sizes, DType dtype, Random& random, double scale = 2.0,
                          bool expand = false) {
  Dims stored = sizes;
  for (int d = 0; expand && d < sizes.size(); ++d)
    if (pick(random, 0, 3) == 0 && sizes[d] > 0) stored[d] = 1;
  std::vector<double> values(static_cast<std::size_t>(numel_of(stored)));
  for (double& v : values) {
    v = std::uniform_real_distribution<double>(-scale, scale)(random);
    if (dtype == DType::Bool) v = v > 0 ? 1.0 : 0.0;
    if (dtype == DType::I32 || dtype == DType::I64) v = std::round(10.0 * v);
  }
  const Array x = awkward(stored, dtype, random);
  x.copy_(Array::from(values, stored, dtype));
  return expand ? x.expand(sizes) : x;
}

inline Dims random_sizes(Random& random, int dims, std::int64_t most) {
  Dims sizes;
  for (int d = 0; d < dims; ++d) sizes.push_back(pick(random, 1, most));
  return sizes;
}

template <class F>
void for_each_isa(const F& f) {
  const cpu::Isa before = cpu::active_isa();
  std::vector<cpu::Isa> all{before};  // first: oneDNN keeps what it finds at its first use
  for (cpu::Isa isa : {cpu::Isa::Baseline, cpu::Isa::Avx2, cpu::Isa::Avx512})
    if (isa != before && isa <= cpu::machine_isa()) all.push_back(isa);
  for (cpu::Isa isa : all) {
    cpu::set_active_isa(isa);
    INFO("seed " << seed() << ", " << cpu::name_of(isa));
    f();
  }
  cpu::set_active_isa(before);
}

// Rounding of one number of the type.
inline double epsilon(DType t) {
  switch (t) {
    case DType::F32:
      return 1.2e-7;
    case DType::F64:
      return 2.3e-16;
    case DType::BF16:
      return 1.0 / 128.0;
    case DType::F16:
      return 1.0 / 1024.0;
    default:
      return 0.0;
  }
}

struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

// Largest deviation beyond the tolerance decides; NaN and infinities must be equal.
inline void check_close(const std::vector<double>& actual, const std::vector<double>& expected,
                        Tolerance tolerance) {
  REQUIRE(actual.size() == expected.size());
  std::size_t bad = 0;
  std::size_t worst = 0;
  double excess = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i];
    const double e = expected[i];
    if (std::isnan(e) && std::isnan(a)) continue;
    if (std::isinf(e) && a == e) continue;
    const double allowed = tolerance.relative * std::abs(e) + tolerance.absolute;
    const double off = std::abs(a - e);
    if (off <= allowed) continue;
    if (bad++ == 0 || !(off - allowed <= excess)) {
      worst = i;
      excess = off - allowed;
    }
  }
  INFO(bad << " of " << actual.size() << " elements off; worst at " << worst << ": "
           << (bad > 0 ? actual[worst] : 0.0) << " instead of " << (bad > 0 ? expected[worst] : 0.0));
  REQUIRE(bad == 0);
}

inline double largest(const std::vector<double>& x) {
  double m = 0.0;
  for (double v : x) m = std::max(m, std::abs(v));
  return m;
}

}  // namespace tessera::kernel_tests
