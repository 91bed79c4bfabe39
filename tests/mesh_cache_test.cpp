// What is worked out once is not worked out again, and an axis of one rank owes nothing to anybody.
#include <catch2/catch.hpp>

#include "mesh/mesh_state.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

TEST_CASE("a redistribution is planned once, whatever its kind", "[mesh]") {
  auto random = test_random(38);
  for (const DeviceMesh& mesh : all_meshes()) {
    const std::int64_t& planned = mesh.cache()->planned;
    const auto index = [](std::int64_t i) { return static_cast<double>(i); };
    for (int trial = 0; trial < trials(20); ++trial) {
      const Dims sizes = random_sizes(random, 2, 7);
      const SpecPtr from = random_spec(random, mesh, sizes, {.partial = true});
      const SpecPtr to = random_spec(random, mesh, sizes, {.partial = true});
      INFO(from->str() << " to " << to->str());
      const Array local = local_part(*from, mesh.rank(), index, DType::F64);
      const Array first = redistribute(local, from, to);
      const std::int64_t before = planned;
      const Array second = redistribute(local, from, to);
      CHECK(planned == before);
      CHECK(first.to_vector() == second.to_vector());
    }
    // The counter counts: owed sums are scattered by a plan too.
    const SpecPtr owed = ShardSpec::make(mesh, Placements(mesh.ndim(), Partial()), {11, 3});
    const SpecPtr cut = ShardSpec::make(mesh, Placements(mesh.ndim(), Shard(0)), {11, 3});
    const Array local = local_part(*owed, mesh.rank(), index, DType::F64);
    const std::int64_t before = planned;
    const Array got = redistribute(local, owed, cut);
    CHECK(planned == before + 1);
    redistribute(local, owed, cut);
    CHECK(planned == before + 1);
    CHECK(got.to_vector() == expected_part(*cut, mesh.rank(), index));
  }
}

TEST_CASE("what is owed over an axis of one rank is there already", "[mesh]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"one", 1}, {"many", ranks}});
  const auto index = [](std::int64_t i) { return static_cast<double>(i); };
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max}) {
    const SpecPtr from = ShardSpec::make(mesh, {Partial(op), Shard(0)}, {9, 2});
    for (const Placement& p : {Replicate(), Shard(1), Partial(ReduceOp::Min)}) {
      const SpecPtr to = ShardSpec::make(mesh, {p, Shard(0)}, {9, 2});
      const Array local = local_part(*from, mesh.rank(), index, DType::F32);
      Recorder& recorder = mesh.comm().recorder();
      recorder.start();
      const Array moved = redistribute(local, from, to);
      recorder.stop();
      INFO(from->str() << " to " << to->str());
      CHECK(recorder.records().empty());
      CHECK(moved.to_vector() == local.to_vector());
    }
  }
}

TEST_CASE("axes that differ between ranks are refused where calls are checked, and cost nothing elsewhere",
          "[mesh]") {
  const Communicator world = test_world();
  const int ranks = world.size();
  const bool last = world.rank() == ranks - 1;
  const bool checked = world.checks_calls();
  const auto differing = [&](const MeshAxis& usual, const MeshAxis& odd) {
    world.set_check_calls(true);
    std::string text = "none";
    try {
      const DeviceMesh mesh(world, {last ? odd : usual});
    } catch (const Error& e) {
      text = e.message();
    }
    world.set_check_calls(checked);
    CHECK(text == (ranks == 1
                       ? "none"
                       : fmt::format("check_calls: rank {} of this group of {} calls DeviceMesh {}={}, "
                                     "rank 0 calls DeviceMesh {}={}",
                                     ranks - 1, ranks, odd.name, odd.size, usual.name, usual.size)));
  };
  differing({"lat", ranks}, {"lon", ranks});
  // All ranks hear of this too, not only the one whose sizes are wrong.
  if (ranks > 1) differing({"lat", ranks}, {"lat", ranks + 1});

  const auto sent = [&](bool check) {
    world.set_check_calls(check);
    const Recorder::Totals before = world.recorder().totals();
    const DeviceMesh mesh(world, {{"lat", ranks}});
    const Recorder::Totals after = world.recorder().totals();
    world.set_check_calls(checked);
    CHECK(mesh.str() == fmt::format("lat={}", ranks));
    return after.messages - before.messages;
  };
  CHECK(sent(false) == 0);
  CHECK(sent(true) == 0);
}
