// A U-Net on the globe: whatever the mesh, the same numbers as on one rank.
//
// Every mesh trains the same model for 8 steps, mirrored maps among them. Losses agree to 1e-4 in float32 and
// 1e-10 in float64, relative, and so do the errors of the resulting map in the held-out regions.
#include <catch2/catch.hpp>

#include <cmath>

#include "examples/relief/score.h"
#include "tests/frames_from.h"
#include "tests/relief_run.h"

namespace ts = tessera;
namespace relief = tessera::relief;

namespace {

// The losses, and what the model comes to in the end.
std::vector<double> numbers(const ts::Communicator& comm, const relief::Settings& s,
                            const std::vector<ts::MeshAxis>& axes) {
  relief::TestRun run(comm, s, axes);
  std::vector<double> result;
  for (int i = 0; i < 8; ++i) result.push_back(run.trainer.step().loss);
  const relief::Score score =
      relief::score_of("the model", run.data, run.trainer.heights(), relief::Where::HeldOut);
  for (const relief::Score::Errors& e : {score.land, score.sea, score.all}) {
    result.push_back(e.plain);
    result.push_back(e.weighted);
  }
  return result;
}

// The numbers of the first ranks, if there are so many, beside `want`, which rank 0 knows.
void check_mesh(const ts::Communicator& world, const relief::Settings& s,
                const std::vector<ts::MeshAxis>& axes, const std::vector<double>& want, double tolerance) {
  int ranks = 1;
  for (const ts::MeshAxis& a : axes) ranks *= a.size;
  if (ranks > world.size()) return;
  const ts::Communicator group = world.split(world.rank() < ranks ? 0 : -1, 0);
  if (group.defined()) {
    const std::vector<double> got = numbers(group, s, axes);
    for (std::size_t i = 0; i < want.size(); ++i) {
      INFO(ranks << " ranks, first axis " << axes[0].name << ", frames from " << ts::frames_from()
                 << " elements, number " << i);
      CHECK(std::abs(got[i] - want[i]) <= tolerance * std::abs(want[i]));
    }
  }
  world.barrier();
}

// Rank 0 makes the one-rank run and compares; the others only take part. Most maps here are so small that
// they are copied with their halo, so each mesh trains once more in frames, as the large ones of the shipped
// run.
void check_meshes(const char* dtype, double tolerance) {
  relief::Settings s = relief::small_settings();
  s.dtype = dtype;
  const ts::Communicator world = ts::test_world();
  const ts::Communicator alone = world.split(world.rank() == 0 ? 0 : -1, 0);
  std::vector<double> want;
  if (alone.defined()) want = numbers(alone, s, {{"domain", 1}});
  const std::vector<std::vector<ts::MeshAxis>> meshes{{{"lat", 2}}, {{"lon", 2}}, {{"lat", 3}},
                                                      {{"lon", 3}}, {{"lat", 4}}, {{"lat", 2}, {"lon", 2}}};
  for (const std::int64_t frames : {ts::frames_from(), std::int64_t{0}}) {
    const ts::FramesFrom scope(frames);
    for (const std::vector<ts::MeshAxis>& axes : meshes) check_mesh(world, s, axes, want, tolerance);
  }
  // It has learnt something, so that it is not zeros that agree.
  if (world.rank() == 0) CHECK(want[7] < 0.97);
}

}  // namespace

TEST_CASE("a U-Net on the globe gives the same losses on every mesh, float32", "[relief]") {
  check_meshes("f32", 1e-4);
}

TEST_CASE("a U-Net on the globe gives the same losses on every mesh, float64", "[relief]") {
  check_meshes("f64", 1e-10);
}
