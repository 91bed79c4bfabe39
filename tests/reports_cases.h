// What the tests of reported faults share: a function on one device against the same function of a cut input,
// under equal cuts, the cuts of torch.chunk, arbitrary, thin and empty ones.
#pragma once
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/frames_from.h"
#include "tests/mesh_cases.h"

namespace tessera::reports {

using namespace mesh_cases;

using Values = std::vector<double>;
struct Row {
  const char* what;
  std::function<Tensor(const Tensors& in)>
      f;  // in[0] is cut; the others are parameters, the same on every rank
  std::vector<Dims> parameters = {};
};

inline Tensor weight(const Dims& sizes, DType dtype = DType::F64) {
  Values v;
  for (std::int64_t i = 0; i < numel_of(sizes); ++i) v.push_back(std::sin(1.0 + static_cast<double>(i)));
  return tensor(v, sizes, dtype);
}
inline Tensor as_float(const Tensor& t) { return to(t, DType::F64); }

inline std::vector<std::int64_t> chunk_cut(std::int64_t n, int ranks) {
  std::vector<std::int64_t> cut;
  const std::int64_t each = (n + ranks - 1) / ranks;
  for (int r = 0; r < ranks; ++r) cut.push_back(std::clamp<std::int64_t>(n - r * each, 0, each));
  return cut;
}

inline std::vector<std::vector<std::int64_t>> cuts(Random& random, std::int64_t n) {
  const int ranks = test_world().size();
  std::vector<std::int64_t> thin(static_cast<std::size_t>(ranks), 1);
  thin.back() = n - ranks + 1;
  std::vector<std::int64_t> empty(static_cast<std::size_t>(ranks), 0);
  empty.front() = n;
  std::vector<std::vector<std::int64_t>> list{
      {}, chunk_cut(n, ranks), random_lengths(random, n, ranks), empty};
  if (thin.back() >= 0) list.push_back(thin);
  return list;
}

// NaN equals NaN, infinity itself.
inline void check_close(const Values& got, const Values& want, double tolerance = 1e-9) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    INFO("element " << i << ": " << got[i] << ", on one device " << want[i]);
    REQUIRE(std::abs(got[i] - want[i]) <= tolerance * std::max(1.0, std::abs(want[i])));
  }
}

// The largest difference.
inline double difference(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// x with its last element replaced: whatever the cut, one rank alone has it.
inline Tensor with_last(const Tensor& x, double value) {
  Values values = x.to_vector();
  values.back() = value;
  return tensor(values, x.sizes(), x.dtype());
}
inline const std::vector<double> kNotFinite{std::numeric_limits<double>::quiet_NaN(),
                                            std::numeric_limits<double>::infinity(),
                                            -std::numeric_limits<double>::infinity()};

// The row on one device.
struct Expected {
  Tensor values;  // of in[0]
  Values out;
  std::vector<Values> gradients;
  Dims sizes;
};
inline Tensors leaves_of(const Row& row, const Tensor& first) {
  Tensors in{first.detach().set_requires_grad()};
  for (const Dims& sizes : row.parameters) in.push_back(weight(sizes, first.dtype()).set_requires_grad());
  return in;
}
inline Expected expect(const Row& row, const Tensor& values) {
  const Tensors in = leaves_of(row, values);
  const Tensor y = row.f(in);
  y.backward(weight(y.sizes(), y.dtype()));
  Expected e{values, y.to_vector(), {}, y.sizes()};
  for (const Tensor& t : in) e.gradients.push_back(t.grad().to_vector());
  return e;
}

inline void check_under(const Row& row, const Expected& want, const SpecPtr& spec, double tolerance = 1e-9,
                        bool parameters = true) {
  const Tensors in = leaves_of(row, want.values.redistribute(spec));
  INFO(row.what << " of " << spec->str());
  const Tensor y = row.f(in);
  REQUIRE(y.sizes() == want.sizes);
  check_close(y.to_vector(), want.out, tolerance);
  y.backward(weight(want.sizes, y.dtype()));
  for (std::size_t i = 0; i < (parameters ? in.size() : 1); ++i) {
    INFO("gradient of input " << i);
    check_close(in[i].grad().to_vector(), want.gradients[i], tolerance);
  }
}

// Every dim of x cut in every way, one at a time, and where there are ranks enough two dims at once.
inline void check_row(Random& random, const Row& row, const Tensor& x, double tolerance = 1e-9,
                      bool parameters = true) {
  const Expected want = expect(row, x);
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  for (int d = 0; d < x.dim(); ++d)
    for (const auto& cut : cuts(random, x.size(d)))
      check_under(row, want, ShardSpec::from_lengths(mesh, {Shard(d)}, x.sizes(), {cut}), tolerance,
                  parameters);
  if (ranks != 4) return;
  const DeviceMesh grid = mesh_over(test_world(), {2, 2});
  for (int d = 0; d < x.dim(); ++d) {
    const int other = (d + 1) % x.dim();
    const std::vector<std::vector<std::int64_t>> lengths{random_lengths(random, x.size(d), 2),
                                                         random_lengths(random, x.size(other), 2)};
    check_under(row, want, ShardSpec::from_lengths(grid, {Shard(d), Shard(other)}, x.sizes(), lengths),
                tolerance, parameters);
  }
}

}  // namespace tessera::reports
