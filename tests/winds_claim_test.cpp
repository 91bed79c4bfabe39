// The claim of the library, on the shipped training run: whatever the mesh, the same numbers as on one rank.
//
// Every mesh trains the same model on the same samples for 20 steps, dropout on. Losses agree to 1e-4 in
// float32 and 1e-10 in float64, relative; parameters to the same tolerance times max(largest |p| of the
// tensor, learning rate).
#include <catch2/catch.hpp>

#include <cmath>

#include "examples/winds/trainer.h"
#include "tests/support/world.h"

namespace ts = tessera;
namespace winds = tessera::winds;

namespace {

struct RunResult {
  std::vector<double> losses;
  std::vector<std::vector<double>> parameters;
  std::vector<std::string> names;
};

winds::Settings shipped() {
  winds::Settings s;
  ts::train::Config config("tessera-winds", "");
  winds::register_settings(config, s);
  config.read_file(TESSERA_WINDS_TOML);
  s.device = ts::name_of(ts::test_device());
  return s;
}

// Trains on the ranks of `comm`.
RunResult train(const ts::Communicator& comm, const winds::Settings& s, const std::vector<ts::MeshAxis>& axes,
                int steps) {
  const ts::DeviceMesh mesh(comm, axes);
  winds::WindSource source;
  source.path = winds::find_wind_file("");
  source.held_out = s.held_out;
  const winds::GridShape grid = winds::read_grid_shape(source, comm);
  const winds::MapCut cut = winds::cut_map(mesh, grid, s.patch);
  const winds::WindData data(source, cut.region, comm, cut.domain.comm());
  winds::Trainer trainer(s, cut, data);
  RunResult r;
  for (int i = 0; i < steps; ++i) r.losses.push_back(trainer.step().loss);
  for (const auto& [name, p] : trainer.model().named_parameters()) {
    r.names.push_back(name);
    r.parameters.push_back(p.to_vector());
  }
  return r;
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (double x : v) m = std::max(m, std::abs(x));
  return m;
}

void compare(const RunResult& got, const RunResult& want, double tolerance, double lr) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) {
    INFO("step " << i + 1);
    CHECK(std::abs(got.losses[i] - want.losses[i]) <= tolerance * std::abs(want.losses[i]));
  }
  REQUIRE(got.names == want.names);
  for (std::size_t k = 0; k < want.names.size(); ++k) {
    double worst = 0;
    for (std::size_t i = 0; i < want.parameters[k].size(); ++i)
      worst = std::max(worst, std::abs(got.parameters[k][i] - want.parameters[k][i]));
    INFO(want.names[k] << ": largest difference " << worst);
    CHECK(worst <= tolerance * std::max(largest(want.parameters[k]), lr));
  }
}

struct MeshCase {
  int ranks;
  std::vector<ts::MeshAxis> axes;
};

// Rank 0 makes the one-rank run and compares; the others only take part.
void check_meshes(const winds::Settings& s, double tolerance, int steps) {
  const ts::Communicator world = ts::test_world();
  const ts::Communicator alone = world.split(world.rank() == 0 ? 0 : -1, 0);
  RunResult want;
  if (alone.defined()) want = train(alone, s, {{"domain", 1}}, steps);
  const std::vector<MeshCase> cases{{2, {{"domain", 2}}},
                                    {3, {{"domain", 3}}},
                                    {4, {{"domain", 4}}},
                                    {4, {{"ddp", 2}, {"domain", 2}}},
                                    {4, {{"lat", 2}, {"lon", 2}}}};
  for (const MeshCase& c : cases) {
    if (c.ranks > world.size()) continue;
    const ts::Communicator group = world.split(world.rank() < c.ranks ? 0 : -1, 0);
    if (group.defined()) {
      INFO("mesh " << c.ranks << " ranks, first axis " << c.axes[0].name << "=" << c.axes[0].size);
      const RunResult got = train(group, s, c.axes, steps);
      if (world.rank() == 0) compare(got, want, tolerance, s.lr);
    }
    world.barrier();
  }
}

}  // namespace

TEST_CASE("the first 20 steps give the same losses on every mesh, float32", "[winds]") {
  winds::Settings s = shipped();
  REQUIRE(s.dropout > 0);
  check_meshes(s, 1e-4, 20);
}

TEST_CASE("the first 20 steps give the same losses on every mesh, float64", "[winds]") {
  winds::Settings s = shipped();
  s.dtype = "f64";
  check_meshes(s, 1e-10, 20);
}
