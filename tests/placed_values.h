// Tensors of given values under a spec, and plain ones beside them, for tests of the tape over ranks.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

namespace tessera::placed_values {

using Values = std::vector<double>;

inline Values random_values(mesh_cases::Random& random, std::int64_t n) {
  Values v(static_cast<std::size_t>(n));
  for (double& x : v) x = static_cast<double>(random_int(random, -1000, 1000)) / 250.0;
  return v;
}

// Of a Partial spec every rank holds a term.
inline Tensor placed(const Values& values, const SpecPtr& spec, bool gradient = true) {
  const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  Tensor t(mesh_cases::local_part(*spec, spec->mesh().rank(), value, DType::F64), spec);
  t.set_requires_grad(gradient);
  return t;
}

inline Tensor plain(const Values& values, const Dims& sizes, bool gradient = false) {
  Tensor t = tensor(values, sizes, DType::F64);
  t.set_requires_grad(gradient);
  return t;
}

inline void check_close(const Values& got, const Values& expected, double tolerance = 1e-12) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
  CHECK(worst <= tolerance);
}

}  // namespace tessera::placed_values
