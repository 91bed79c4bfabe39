// Every operation, with random shapes and parameters, on random meshes under random placements and cuts,
// against the same call on one rank: values, all gradients under a random cotangent, and gradients of
// gradients.
#include <catch2/catch.hpp>

#include "tests/ops_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::ops_cases;

namespace {

constexpr double kTolerance = 1e-11;

void check_one(Random& random, const DeviceMesh& mesh, const OpFamily& family, bool second) {
  const OpCase c = family.draw(random);
  const Reference reference = run_plain(random, c, second);
  const Parity p = run_on_mesh(random, mesh, c, reference);
  INFO(c.text << " on " << mesh.str() << p.where);
  CHECK(p.refused == reference.refused);
  CHECK(p.outputs <= kTolerance);
  CHECK(p.gradients <= kTolerance);
  CHECK(p.second <= 10 * kTolerance);
  CHECK(p.replicas);
}

}  // namespace

// One mesh for all trials: cached plans of one call must never serve another.
TEST_CASE("every operation agrees with one rank", "[ops]") {
  auto random = test_random(70);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(4); ++trial)
    for (const OpFamily& family : families()) check_one(random, pick(random, meshes), family, false);
}

TEST_CASE("gradients of gradients agree with one rank", "[ops]") {
  auto random = test_random(71);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(2); ++trial)
    for (const OpFamily& family : families()) check_one(random, pick(random, meshes), family, true);
}

TEST_CASE("operands of other sizes get plans of their own", "[ops]") {
  auto random = test_random(72);
  const DeviceMesh mesh = all_meshes().front();
  const Tensor x = random_input(random, mesh, {{6, 4}}, std::vector<double>(24, 1.0));
  for (std::int64_t n = 1; n < 40; ++n) {
    const Tensor y = matmul(x, ones({4, n}, DType::F64));
    REQUIRE(y.sizes() == Dims{6, n});
    REQUIRE(y.to_vector() == std::vector<double>(static_cast<std::size_t>(6 * n), 4.0));
  }
}

TEST_CASE("random tensors have the same values under every spec", "[ops]") {
  auto random = test_random(73);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(6); ++trial) {
      const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 0, 3)), 6);
      const std::uint64_t seed = random();
      const SpecPtr spec = random_spec(random, mesh, sizes);
      Generator a(seed);
      Generator b(seed);
      CHECK(randn(sizes, a, DType::F64).to_vector() == randn(sizes, b, DType::F64, spec).to_vector());
      CHECK(rand(sizes, a, DType::F32).to_vector() == rand(sizes, b, DType::F32, spec).to_vector());
      const Tensor x(Array::zeros(sizes, DType::F32));
      const Tensor y(Array::zeros(spec->local_sizes(), DType::F32), spec);
      trunc_normal_(x, 0.0, 0.02, a);
      trunc_normal_(y, 0.0, 0.02, b);
      CHECK(x.to_vector() == y.to_vector());
    }
}
