// Every operation, with random shapes and parameters, on random meshes under random placements and cuts,
// against the same call on one rank in float64: values, all gradients under a random cotangent, and gradients
// of gradients; in float64 and float32. A case that fails is followed by the smallest one found that fails
// too (tests/ops_trials.h).
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/ops_trials.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::ops_cases;

namespace {

constexpr int kTrials = 200;  // of each operation

const char* environment(const char* name) { return std::getenv(name); }

}  // namespace

TEST_CASE("every operation agrees with one rank", "[ops]") {
  const std::vector<DeviceMesh> meshes = all_meshes();
  const char* alone = environment("TESSERA_TRIAL");
  const char* ease = environment("TESSERA_EASE");
  for (const OpFamily& family : families()) {
    const std::uint64_t first = alone != nullptr ? std::strtoull(alone, nullptr, 10) : 0;
    const std::uint64_t count = alone != nullptr ? 1 : static_cast<std::uint64_t>(trials(kTrials));
    for (std::uint64_t number = first; number < first + count; ++number) {
      const Trial trial{family, meshes, number};
      const Outcome outcome = run_trial(trial, ease != nullptr ? Easing::parse(ease) : Easing());
      if (outcome.failure.empty()) continue;
      std::string text = outcome.failure;
      // A trial that is run alone is one that was chosen; held as is asked for, or as simply as can be.
      if (ease == nullptr)
        text += "\nsmallest: " + smallest(trial, outcome, alone != nullptr ? 0 : 400).outcome.failure;
      FAIL_CHECK(text);
      break;  // one report an operation
    }
    SUCCEED(family.name);
  }
}

TEST_CASE("operands of other sizes get plans of their own", "[ops]") {
  auto random = test_random(72);
  const DeviceMesh mesh = all_meshes().front();
  const Tensor x = random_input(random, mesh, {{6, 4}}, std::vector<double>(24, 1.0));
  for (std::int64_t n = 1; n < 40; ++n) {
    const Tensor y = matmul(x, Tensor(Array::full({4, n}, 1.0, DType::F64, x.device())));
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
