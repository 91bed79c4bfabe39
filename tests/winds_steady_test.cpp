// A training run that has warmed up takes nothing more: step 2000 costs what step 20 cost.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <fstream>
#include <set>

#include "mesh/mesh_state.h"
#include "runtime/allocator.h"
#include "tests/support/page_faults.h"
#include "tests/winds_run.h"

namespace ts = tessera;
namespace winds = tessera::winds;

namespace {

winds::Settings tiny() {
  winds::Settings s;
  s.width = 8;
  s.depth = 1;
  s.heads = 1;
  s.patch = {16, 48};
  s.batch = 1;
  s.steps = 4000;
  return s;
}

// Memory of this process that is in use, in bytes (the second number of statm, in pages).
std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// All that a step could leave behind or ask for once more.
struct StepCost {
  std::int64_t from_system = 0, allocations = 0, live_blocks = 0;
  std::int64_t messages = 0, bytes = 0;
  std::int64_t planned = 0;  // plans that no cache knew
  std::size_t specs = 0;     // entries of the meshes' tables
  std::set<std::string> kinds;
  bool operator==(const StepCost&) const = default;
};

StepCost cost_of_a_step(winds::TestRun& run) {
  ts::Recorder& recorder = ts::test_world().recorder();
  const std::array<ts::MeshCache*, 2> caches{run.mesh.cache().get(), run.cut.domain.cache().get()};
  const auto planned = [&] { return caches[0]->planned + caches[1]->planned; };
  const ts::AllocatorStats before = ts::allocator_stats(ts::Device::Cpu);
  const ts::Recorder::Totals sent = recorder.totals();
  const std::int64_t planned_before = planned();
  recorder.start();
  run.trainer.step();
  recorder.stop();
  const ts::AllocatorStats after = ts::allocator_stats(ts::Device::Cpu);
  const ts::Recorder::Totals now = recorder.totals();
  StepCost c;
  c.from_system = after.system_allocations - before.system_allocations;
  c.allocations = after.allocations - before.allocations;
  c.live_blocks = after.live_blocks;
  c.messages = now.messages - sent.messages;
  c.bytes = now.bytes - sent.bytes;
  c.planned = planned() - planned_before;
  for (const ts::MeshCache* cache : caches) c.specs += cache->specs.size();
  for (const ts::CommRecord& r : recorder.records()) c.kinds.emplace(r.kind);
  return c;
}

}  // namespace

TEST_CASE("step 2000 costs what step 20 costs and memory is flat", "[winds]") {
  // What MPI and the C library may still take for themselves in 1800 steps: less than 600 bytes a step. One
  // tensor of this model that stayed behind in every step would be 18 MB.
  constexpr std::int64_t kMayGrow = 1 << 20;
  winds::TestRun run(tiny(), {{"domain", ts::test_world().size()}});
  const auto train_to = [&](int step) {
    while (run.trainer.steps_done() < step) run.trainer.step();
  };
  train_to(19);
  const StepCost early = cost_of_a_step(run);
  train_to(200);
  const std::int64_t resident = resident_bytes();
  const std::int64_t faults = ts::page_faults();
  train_to(1999);
  const std::int64_t met = ts::page_faults() - faults;
  const StepCost late = cost_of_a_step(run);
  const std::int64_t grown = resident_bytes() - resident;

  CHECK(early.from_system == 0);
  CHECK(early.planned == 0);
  // Gradients, statistics and keys; nobody asks anybody for a shape.
  const std::set<std::string> kinds{"all_reduce", "exchange"};
  if (ts::test_world().size() > 1) CHECK(early.kinds == kinds);
  CHECK(late.from_system == 0);
  CHECK(late.allocations == early.allocations);
  CHECK(late.specs == early.specs);
  CHECK(late == early);
  INFO("resident memory grew by " << grown << " bytes between step 200 and step 2000");
  CHECK(grown <= kMayGrow);
  // Memory that every step takes anew, or gives back and takes again, shows as a page or more in each of
  // them; what the C library and MPI take now and then is a handful.
  INFO(met << " page faults in 1799 steps");
  CHECK(met < 1799);
}
