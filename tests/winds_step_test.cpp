// What one training step of the winds model costs: messages and bytes by the formula, nothing from the
// system, the same after many steps as after few.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>

#include "examples/winds/trainer.h"
#include "runtime/allocator.h"
#include "support/world.h"

namespace ts = tessera;
namespace winds = tessera::winds;

namespace {

winds::Settings small() {
  winds::Settings s;
  s.width = 24;
  s.depth = 2;
  s.heads = 2;
  s.patch = {4, 12};
  s.steps = 4000;
  return s;
}

struct Run {
  winds::Settings settings;
  ts::DeviceMesh mesh;
  winds::GridShape grid;
  winds::MapCut cut;
  winds::WindData data;
  winds::Trainer trainer;

  Run(const winds::Settings& s, std::vector<ts::MeshAxis> axes)
      : settings(s),
        mesh(ts::test_world(), std::move(axes)),
        grid(winds::read_grid_shape(source(), ts::test_world())),
        cut(winds::cut_map(mesh, grid, s.patch)),
        data(source(), cut.region, ts::test_world(), cut.domain.comm()),
        trainer(settings, cut, data) {}

  static winds::WindSource source() {
    winds::WindSource w;
    w.path = winds::find_wind_file("");
    return w;
  }
};

struct Counts {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};
std::map<std::string, Counts> by_kind(const ts::Recorder& recorder) {
  std::map<std::string, Counts> counts;
  for (const ts::CommRecord& r : recorder.records()) {
    Counts& c = counts[std::string(r.kind)];
    c.messages += r.messages;
    c.bytes += r.bytes;
  }
  return counts;
}

}  // namespace

TEST_CASE("messages and bytes of a step equal the formula", "[winds]") {
  const int ranks = ts::test_world().size();
  Run run(small(), {{"domain", ranks}});
  run.trainer.step();
  ts::Recorder& recorder = ts::test_world().recorder();
  recorder.start();
  run.trainer.step();
  recorder.stop();
  auto counts = by_kind(recorder);

  // Tokens of rank r: its patch rows times the patch columns.
  const winds::Settings& s = run.settings;
  const std::int64_t columns = run.grid.cols / s.patch[1];
  std::vector<std::int64_t> tokens;
  for (ts::Interval i : ts::default_partition(run.cut.padded_rows / s.patch[0], ranks))
    tokens.push_back(i.length() * columns);
  // A block of keys and values of rank r; gradients of it are float32 too.
  auto block = [&](int r) { return s.batch * tokens[static_cast<std::size_t>(r)] * 2 * s.width * 4; };
  // Forward hands on ranks − 1 blocks; backward those again, and as many blocks of gradients: what rank r
  // hands on at step t started t ranks before it, and a gradient at step t ≥ 1 belongs to the block at hand.
  const int me = ts::test_world().rank();
  std::int64_t bytes = 0;
  for (int t = 0; t + 1 < ranks; ++t) bytes += 2 * block((me - t + ranks) % ranks);
  for (int t = 1; t < ranks; ++t) bytes += block((me - t + ranks) % ranks);
  CHECK(counts["exchange"].bytes == s.depth * bytes);
  CHECK(counts["exchange"].messages == s.depth * 3 * (ranks - 1));

  // Gradients: one message a bucket; the loss: one number. Nothing else, and no all-gather of activations.
  ts::train::DataParallel& parallel = run.trainer.parallel();
  std::int64_t reduced = ranks > 1 ? 4 : 0;
  for (std::size_t b = 0; b < parallel.bucket_count(); ++b)
    reduced += ranks > 1 ? parallel.bucket_bytes(b) : 0;
  CHECK(counts["all_reduce"].bytes == reduced);
  CHECK(counts["all_reduce"].messages ==
        (ranks > 1 ? static_cast<std::int64_t>(parallel.bucket_count()) + 1 : 0));
  for (const auto& [kind, c] : counts) {
    INFO(kind);
    CHECK((kind == "exchange" || kind == "all_reduce"));
  }
}

TEST_CASE("a step takes nothing from the system and costs the same after 2000 steps as after 20", "[winds]") {
  const int ranks = ts::test_world().size();
  winds::Settings s = small();
  s.width = 8;
  s.depth = 1;
  s.heads = 1;
  s.patch = {16, 48};
  s.batch = 1;
  Run run(s, {{"domain", ranks}});
  ts::Recorder& recorder = ts::test_world().recorder();
  struct State {
    std::int64_t from_system, allocations, live, messages, bytes;
    bool operator==(const State&) const = default;
  };
  auto cost_of_a_step = [&] {
    const ts::AllocatorStats before = ts::allocator_stats(ts::Device::Cpu);
    const ts::Recorder::Totals sent = recorder.totals();
    run.trainer.step();
    const ts::AllocatorStats after = ts::allocator_stats(ts::Device::Cpu);
    const ts::Recorder::Totals now = recorder.totals();
    return State{after.system_allocations - before.system_allocations, after.allocations - before.allocations,
                 after.live_blocks, now.messages - sent.messages, now.bytes - sent.bytes};
  };
  for (int i = 0; i < 20; ++i) run.trainer.step();
  const State early = cost_of_a_step();
  for (int i = 21; i < 2000; ++i) run.trainer.step();
  const State late = cost_of_a_step();
  CHECK(early.from_system == 0);
  CHECK(late == early);
}
