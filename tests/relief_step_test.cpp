// What one training step of a U-Net on the globe sends: the halos of its convolutions by the formula, and a
// few numbers for norms, loss and gradients. No rank gathers a map.
#include <catch2/catch.hpp>

#include <string>

#include "tests/frames_from.h"
#include "tests/relief_run.h"

namespace ts = tessera;
namespace relief = tessera::relief;

namespace {

struct Counts {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

// Ranks on either side of this one, as cells of a map see them: above and below there may be none at a pole,
// to the west and east there is always one, once the map is cut. Two ranks are each other's west and east:
// one message.
struct Neighbours {
  std::int64_t vertical = 0;
  std::int64_t sides = 0;  // 0 or 2
  std::int64_t beside = 0;
};

Neighbours neighbours(const relief::TestRun& run) {
  Neighbours n;
  const auto& rows = run.cut.region.rows.front();
  const auto& cols = run.cut.region.cols.front();
  n.vertical = (rows.lo > 0 ? 1 : 0) + (rows.hi < run.cut.shape.rows ? 1 : 0);
  if (cols.length() == run.cut.shape.cols) return n;
  n.sides = 2;
  n.beside = 2 * cols.length() == run.cut.shape.cols ? 1 : 2;
  return n;
}

// One row of cells around a rank's part for every convolution of kernel 3: on the way forward its values, on
// the way back their gradients, which the model's input has none of. All of it is float32.
Counts halos(const relief::TestRun& run) {
  const Neighbours n = neighbours(run);
  Counts counts;
  const auto add = [&](std::int64_t channels, std::int64_t level, int times) {
    const std::int64_t rows = run.data.rows() >> level;
    const std::int64_t cols = run.data.cols() >> level;
    counts.messages += times * (n.vertical + n.beside + n.vertical * n.beside);
    counts.bytes += times * channels * 4 * (n.vertical * cols + n.sides * rows + n.vertical * n.sides);
  };
  const std::vector<int>& widths = run.settings.widths;
  for (std::size_t level = 0; level < widths.size(); ++level) {
    const auto at = static_cast<std::int64_t>(level);
    if (level == 0) add(relief::kInputs, at, 1);
    if (level > 0) add(widths[level], at, 2);
    add(widths[level], at, 2);
    if (level + 1 == widths.size()) continue;
    add(2 * widths[level], at, 2);
    add(widths[level], at, 2);
  }
  return counts;
}

void check_step(const std::vector<ts::MeshAxis>& axes) {
  relief::TestRun run(ts::test_world(), relief::small_settings(), axes);
  INFO("mesh " << run.mesh.str());
  const Counts wanted = halos(run);
  ts::Recorder& recorder = ts::test_world().recorder();
  // The map as it is and its three mirror images.
  for (int i = 0; i < 4; ++i) {
    recorder.start();
    run.trainer.step();
    recorder.stop();
    INFO("step " << i + 1);
    Counts exchanged;
    Counts gradients;
    for (const ts::CommRecord& r : recorder.records()) {
      const bool halo = std::string(r.kind) == "exchange";
      const bool bucket = std::string(r.scope) == "data_parallel";
      Counts& counts = halo ? exchanged : gradients;
      if (halo || bucket) {
        counts.messages += r.messages;
        counts.bytes += r.bytes;
        continue;
      }
      INFO(r.kind << " for " << r.scope);
      CHECK((std::string(r.kind) == "all_gather" || std::string(r.kind) == "all_reduce"));
      CHECK(r.bytes <= 16 * run.settings.groups);
    }
    CHECK(exchanged.messages == wanted.messages);
    CHECK(exchanged.bytes == wanted.bytes);
    Counts buckets;
    for (std::size_t b = 0; b < run.trainer.parallel().bucket_count() && run.mesh.size() > 1; ++b) {
      ++buckets.messages;
      buckets.bytes += run.trainer.parallel().bucket_bytes(b);
    }
    CHECK(gradients.messages == buckets.messages);
    CHECK(gradients.bytes == buckets.bytes);
  }
}

}  // namespace

TEST_CASE("a step of the U-Net sends halos and a few numbers, no maps", "[relief]") {
  const int ranks = ts::test_world().size();
  check_step({{"lat", ranks}});
  check_step({{"lon", ranks}});
  if (ranks == 4) check_step({{"lat", 2}, {"lon", 2}});
}

TEST_CASE("so it does where convolutions go in frames, as of large maps", "[relief]") {
  const ts::FramesFrom always(0);
  const int ranks = ts::test_world().size();
  check_step({{"lat", ranks}});
  if (ranks == 4) check_step({{"lat", 2}, {"lon", 2}});
}
