// Both examples trained on the device: the losses of the CPU, no allocation from the driver, and a host that
// waits for nothing but the loss it reads.
#include <catch2/catch.hpp>

#include <cmath>

#include "runtime/allocator.h"
#include "runtime/cuda/api.h"
#include "tests/relief_run.h"
#include "tests/winds_run.h"

namespace ts = tessera;

namespace {

constexpr int kSteps = 20;

ts::winds::Settings small_winds() {
  ts::winds::Settings s;
  s.width = 24;
  s.depth = 2;
  s.heads = 2;
  s.patch = {4, 12};
  s.steps = 4000;
  s.dropout = 0.2;
  return s;
}

template <class Trainer>
std::vector<double> losses(Trainer& trainer) {
  std::vector<double> list;
  for (int i = 0; i < kSteps; ++i) list.push_back(trainer.step().loss);
  return list;
}

void check_alike(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO("step " << i + 1 << ": " << a[i] << " and " << b[i]);
    CHECK(std::abs(a[i] - b[i]) <= 1e-4 * std::abs(b[i]));
  }
}

}  // namespace

TEST_CASE("a vision transformer's losses are those of the CPU", "[device]") {
  const std::vector<ts::MeshAxis> axes{{"domain", ts::test_world().size()}};
  ts::winds::TestRun there(small_winds(), axes);
  REQUIRE(there.settings.device == "cuda");
  ts::winds::TestRun here(small_winds(), axes);
  here.settings.device = "cpu";
  ts::winds::Trainer cpu(here.settings, here.cut, here.data);
  check_alike(losses(there.trainer), losses(cpu));
}

TEST_CASE("a U-Net's losses are those of the CPU", "[device]") {
  const std::vector<ts::MeshAxis> axes{{"domain", ts::test_world().size()}};
  ts::relief::TestRun there(ts::test_world(), ts::relief::small_settings(), axes);
  REQUIRE(there.settings.device == "cuda");
  ts::relief::Settings on_cpu = there.settings;
  on_cpu.device = "cpu";
  ts::relief::Trainer cpu(on_cpu, there.data);
  check_alike(losses(there.trainer), losses(cpu));
}

TEST_CASE("a step in the steady state asks the driver for nothing", "[device]") {
  ts::winds::TestRun run(small_winds(), {{"domain", ts::test_world().size()}});
  for (int i = 0; i < 5; ++i) run.trainer.step();
  const std::int64_t before = ts::allocator_stats(ts::Device::Cuda).system_allocations;
  for (int i = 0; i < 5; ++i) run.trainer.step();
  CHECK(ts::allocator_stats(ts::Device::Cuda).system_allocations == before);
}
