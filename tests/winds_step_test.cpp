// What one training step of the winds model sends: messages and bytes by the formula, on every mesh.
#include <catch2/catch.hpp>

#include <map>

#include "tests/winds_run.h"

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

struct Counts {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  Counts& operator+=(const Counts& o) {
    messages += o.messages;
    bytes += o.bytes;
    return *this;
  }
};
std::map<std::string, Counts> by_kind(const ts::Recorder& recorder) {
  std::map<std::string, Counts> counts;
  for (const ts::CommRecord& r : recorder.records()) {
    counts[std::string(r.kind)] += {r.messages, r.bytes};
  }
  return counts;
}

// What a step sends, worked out from the shapes alone.
//
// The rows of patches are cut over the first domain axis, their columns over the second one, if there is
// one. Samples are shared out evenly over ddp.
struct StepFormula {
  std::int64_t samples = 0;          // of this rank
  std::vector<std::int64_t> tokens;  // of every rank of its domain
  int place = 0;                     // of this rank among those

  StepFormula(const winds::TestRun& run, int ddp) : samples(run.settings.batch / ddp) {
    const winds::Settings& s = run.settings;
    const ts::DeviceMesh& domain = run.cut.domain;
    const auto rows = ts::default_partition(run.cut.shape.padded_rows() / s.patch[0], domain.size(0));
    const auto cols =
        ts::default_partition(run.grid.cols / s.patch[1], domain.ndim() > 1 ? domain.size(1) : 1);
    for (ts::Interval r : rows)
      for (ts::Interval c : cols) tokens.push_back(r.length() * c.length());
    place = domain.rank();
  }
  int ranks() const { return static_cast<int>(tokens.size()); }

  // Keys and values of one layer make a ring over the domain. Forward hands on ranks − 1 blocks; backward
  // those again, and as many blocks of gradients: what rank r hands on at step t started t ranks before it,
  // and a gradient at step t ≥ 1 belongs to the block at hand. All of it is float32.
  std::int64_t ring_messages() const { return 3 * (ranks() - 1); }
  std::int64_t ring_bytes(int width) const {
    std::int64_t blocks = 0;  // tokens in them
    for (int t = 0; t < ranks(); ++t) {
      const std::int64_t block = tokens[static_cast<std::size_t>((place - t + ranks()) % ranks())];
      blocks += (t + 1 < ranks() ? 2 : 0) * block + (t > 0 ? 1 : 0) * block;
    }
    return samples * blocks * 2 * width * 4;
  }
};

// Nothing but keys and values travel as exchanges: no halo (patches do not overlap), no all-gather of
// activations, nothing about shapes. Gradients are one message a bucket over all ranks; the loss is one
// float32 over the domain for people to read, and one float64 over ddp.
void check_step(const std::vector<ts::MeshAxis>& axes) {
  winds::TestRun run(small(), axes);
  INFO("mesh " << run.mesh.str());
  run.trainer.step();
  ts::Recorder& recorder = ts::test_world().recorder();
  recorder.start();
  run.trainer.step();
  recorder.stop();
  auto counts = by_kind(recorder);

  const winds::Settings& s = run.settings;
  const bool has_ddp = run.mesh.has_axis("ddp");
  const StepFormula formula(run, run.cut.ddp);
  CHECK(counts["exchange"].messages == s.depth * formula.ring_messages());
  CHECK(counts["exchange"].bytes == s.depth * formula.ring_bytes(s.width));

  Counts reduced;
  if (formula.ranks() > 1) reduced += {1, 4};
  if (has_ddp) reduced += {1, 8};
  ts::train::DataParallel& parallel = run.trainer.parallel();
  for (std::size_t b = 0; b < parallel.bucket_count() && run.mesh.size() > 1; ++b)
    reduced += {1, parallel.bucket_bytes(b)};
  CHECK(counts["all_reduce"].messages == reduced.messages);
  CHECK(counts["all_reduce"].bytes == reduced.bytes);
  for (const auto& [kind, c] : counts) {
    INFO(kind);
    CHECK((kind == "exchange" || kind == "all_reduce"));
  }
}

}  // namespace

TEST_CASE("messages and bytes of a step equal the formula", "[winds]") {
  const int ranks = ts::test_world().size();
  std::vector<std::vector<ts::MeshAxis>> meshes{{{"domain", ranks}}};
  if (ranks == 4) meshes.push_back({{"ddp", 2}, {"domain", 2}});
  if (ranks == 4) meshes.push_back({{"lat", 2}, {"lon", 2}});
  for (const std::vector<ts::MeshAxis>& axes : meshes) check_step(axes);
}
