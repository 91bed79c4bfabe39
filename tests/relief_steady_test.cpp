// A training run on the globe that has warmed up takes no memory: neither from the system nor from the C
// library in pieces that it gives back.
#include <catch2/catch.hpp>

#include "mesh/mesh_state.h"
#include "runtime/allocator.h"
#include "tests/relief_run.h"
#include "tests/support/page_faults.h"

namespace ts = tessera;
namespace relief = tessera::relief;

TEST_CASE("a warm step of the U-Net takes no memory", "[relief]") {
  constexpr int kWarm = 20;  // the map as it is and its three mirror images, five times
  constexpr int kSteps = 40;
  relief::TestRun run(ts::test_world(), relief::small_settings(), {{"lat", ts::test_world().size()}});
  for (int i = 0; i < kWarm; ++i) run.trainer.step();
  const ts::AllocatorStats before = ts::allocator_stats(ts::Device::Cpu);
  const std::int64_t planned = run.mesh.cache()->planned;
  const std::int64_t faults = ts::page_faults();
  for (int i = 0; i < kSteps; ++i) run.trainer.step();
  const std::int64_t met = ts::page_faults() - faults;
  const ts::AllocatorStats after = ts::allocator_stats(ts::Device::Cpu);
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.live_blocks == before.live_blocks);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(run.mesh.cache()->planned == planned);
  // What every step takes anew shows as a page or more in each; the C library and MPI may take one now and
  // then.
  INFO(met << " page faults in " << kSteps << " steps");
  CHECK(met < kSteps);
}
