// What the tests of attention on the device share: numbers that a type holds, comparisons in units of its
// rounding.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "runtime/copy.h"
#include "tests/mesh_cases.h"
#include "tests/support/world.h"

namespace tessera::attention_cases {

using Random = std::mt19937_64;
using Values = std::vector<double>;

inline double epsilon(DType t) { return t == DType::BF16 ? 1.0 / 256 : t == DType::F16 ? 1.0 / 2048 : 6e-8; }

inline double largest(const Values& v) {
  double most = 0;
  for (const double x : v) most = std::max(most, std::abs(x));
  return most;
}

// Each number is off by no more than a few roundings of the largest. Where all are zero in exact numbers (the
// gradient of a query that one key answers), what cancels is of the inputs' size, about 1.
inline void check_close(const Array& got, const Array& want, double tolerance) {
  const Values a = got.to_vector();
  const Values b = want.to_vector();
  REQUIRE(a.size() == b.size());
  const double most = largest(b);
  const double allowed = tolerance * (most < 1e-12 ? 1 : most + 1e-3);
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= allowed))
      FAIL("element " << i << " is " << a[i] << " instead of " << b[i] << ", allowed is " << allowed);
}

// [N, H, L, D] of random numbers that the type holds, heads or tokens outermost, or with gaps between rows
// that are no multiple of 16 bytes.
inline Array heads_on_device(Random& random, const Dims& sizes, DType dtype) {
  Values values(static_cast<std::size_t>(numel_of(sizes)));
  std::normal_distribution<double> draw;
  for (double& v : values) v = draw(random);
  const Array here = Array::from(values, sizes, dtype);
  const std::int64_t kind = random_int(random, 0, 3);
  Array there;
  if (kind == 0) {
    there = Array::empty(sizes, dtype, Device::Cuda);
  } else if (kind == 1) {
    there =
        Array::empty({sizes[0], sizes[1], sizes[2], sizes[3] + 3}, dtype, Device::Cuda).slice(3, 1, sizes[3]);
  } else {
    there = Array::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype, Device::Cuda).transpose(1, 2);
  }
  copy_strided(there, here);
  return there;
}
// Dense rows [N, H, L] of f32 that begin anywhere in a block of memory, as parts of a larger array do.
inline Array rows_on_device(Random& random, const Dims& sizes) {
  const std::int64_t n = numel_of(sizes);
  return Array::empty({n + 3}, DType::F32, Device::Cuda).slice(0, random_int(random, 0, 3), n).reshape(sizes);
}
inline Array exact(const Array& a) { return a.to(Device::Cpu).to(DType::F64).contiguous(); }

}  // namespace tessera::attention_cases
