// Every operation, with random shapes and parameters, on random meshes under random placements and cuts,
// against the same call on one rank in float64: values, all gradients under a random cotangent, and gradients
// of gradients; in float64 and float32. A case that fails is followed by the smallest one found that fails
// too.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "ops/conv/conv_frame.h"
#include "tests/ops_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::ops_cases;

namespace {

constexpr double kTolerance = 1e-11;
constexpr int kTrials = 200;   // of each operation
constexpr int kSmaller = 400;  // draws in search of a smaller case that fails too

// A trial is a number: everything that it draws depends on that, the seed and the family's name.
struct Trial {
  const OpFamily& family;
  std::uint64_t number;
  // Every other one in float32, some of the rest with second derivatives.
  DType dtype() const { return number % 2 == 1 ? DType::F32 : DType::F64; }
  bool second() const { return number % 8 == 0; }
  // Half of the convolutions in frames, which maps of these sizes are too small for.
  std::int64_t frames() const { return number / 2 % 2 == 0 ? 0 : INT64_MAX; }
  Random random() const {
    std::uint64_t h = test_seed() * 0x9e3779b97f4a7c15U + number;
    for (const char* c = family.name; *c != 0; ++c) h = (h ^ static_cast<unsigned char>(*c)) * 0x100000001b3U;
    return Random(h);
  }
};

// "" when the numbers are those of one rank in float64. In float32 the same call on plain tensors says how
// far off the operation is by itself.
std::string faults(const Parity& p, const Reference& reference, const Parity& plain, DType dtype) {
  std::string text;
  if (p.refused != reference.refused)
    text += fmt::format("\n  refused: \"{}\", on one rank: \"{}\"", p.refused, reference.refused);
  const auto check = [&](const char* what, double error, double by_itself, double factor) {
    const double allowed = dtype == DType::F32 ? 2e-5 + 20 * by_itself : factor * kTolerance;
    if (!(error <= allowed))
      text += fmt::format("\n  {} off by {:.1e}, allowed {:.1e}", what, error, allowed);
  };
  check("outputs", p.outputs, plain.outputs, 1);
  check("gradients", p.gradients, plain.gradients, 1);
  check("second derivatives", p.second, plain.second, 10);
  if (!p.replicas) text += "\n  ranks hold different bits of a whole tensor";
  return text;
}

struct Outcome {
  std::string failure;    // "" is well
  std::int64_t size = 0;  // elements that go in
};

// `at_most`: cases of this size or more are not run.
Outcome run(const Trial& trial, const std::vector<DeviceMesh>& meshes, std::int64_t at_most = INT64_MAX) {
  Random random = trial.random();
  set_frames_from(trial.frames());
  const DeviceMesh& mesh = pick(random, meshes);
  const OpCase c = trial.family.draw(random);
  Outcome outcome;
  for (const InputSpec& in : c.inputs) outcome.size += numel_of(in.sizes) + in.sizes.size();
  if (outcome.size >= at_most) return outcome;
  const Reference reference = run_plain(random, c, trial.second());
  Parity plain;
  if (trial.dtype() == DType::F32) plain = run_on_mesh(random, DeviceMesh(), c, reference, DType::F32);
  const Parity p = run_on_mesh(random, mesh, c, reference, trial.dtype());
  std::string text = faults(p, reference, plain, trial.dtype());
  if (true_everywhere(text.empty())) return outcome;
  if (text.empty()) text = "\n  wrong on another rank";
  outcome.failure = fmt::format("{} in {} on {}{}{}\n  alone: TESSERA_FAMILY='{}' TESSERA_TRIAL={} --seed {}",
                                c.text, name_of(trial.dtype()), mesh.str(), p.where, text, trial.family.name,
                                trial.number, test_seed());
  return outcome;
}

// Other draws of the same operation, smaller and smaller, as long as they fail.
std::string smallest(const Trial& trial, const std::vector<DeviceMesh>& meshes, Outcome worst) {
  for (std::uint64_t i = 1; i <= kSmaller; ++i) {
    const Outcome next = run({trial.family, trial.number + (i << 32U)}, meshes, worst.size);
    if (!next.failure.empty()) worst = next;
  }
  return worst.failure;
}

}  // namespace

// One mesh of each shape for all trials: cached plans of one call must never serve another.
TEST_CASE("every operation agrees with one rank", "[ops]") {
  const std::vector<DeviceMesh> meshes = all_meshes();
  const char* alone = std::getenv("TESSERA_TRIAL");
  const std::int64_t frames = frames_from();
  for (const OpFamily& family : families()) {
    const std::uint64_t first = alone != nullptr ? std::strtoull(alone, nullptr, 10) : 0;
    const std::uint64_t count = alone != nullptr ? 1 : static_cast<std::uint64_t>(trials(kTrials));
    for (std::uint64_t number = first; number < first + count; ++number) {
      const Trial trial{family, number};
      const Outcome outcome = run(trial, meshes);
      if (outcome.failure.empty()) continue;
      FAIL_CHECK(
          outcome.failure << (alone != nullptr ? "" : "\nsmallest: " + smallest(trial, meshes, outcome)));
      break;  // one report an operation
    }
    SUCCEED(family.name);
  }
  set_frames_from(frames);
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
