// From one mesh to another: every pair of meshes over the same ranks, in any order and shape, under random
// specs. Values against the global tensor, messages against the sets of elements that ranks hold and want.
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "mesh/mesh_state.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

double coded(std::int64_t i) { return static_cast<double>(i + 1); }

// Meshes of up to three axes over all ranks of the world in random orders; the first two are alike.
std::vector<DeviceMesh> some_meshes(Random& random, int count) {
  const int ranks = test_world().size();
  std::vector<DeviceMesh> meshes{mesh_over(test_world(), {ranks}), mesh_over(test_world(), {ranks})};
  while (static_cast<int>(meshes.size()) < count) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    if (chance(random, 70)) std::shuffle(order.begin(), order.end(), random);
    std::vector<int> sizes = random_mesh_sizes(random, ranks);
    if (chance(random, 30)) sizes.insert(sizes.begin() + random_int(random, 0, 1), 1);
    meshes.push_back(mesh_over(test_world().subgroup({order}), sizes));
  }
  return meshes;
}

std::set<std::int64_t> elements_of(const ShardSpec& spec) {
  const std::vector<std::int64_t> list = global_indices(layout_of(spec, spec.mesh().rank()), spec.sizes());
  return {list.begin(), list.end()};
}

// Whether another rank's term is the value here.
bool idle(const ShardSpec& spec) {
  const DeviceMesh mesh = spec.mesh();
  for (int a = 0; a < mesh.ndim(); ++a)
    if (spec.placement(a).is_partial() && mesh.coordinate(a) != 0) return true;
  return false;
}

int terms_of(const ShardSpec& spec) {
  int terms = 1;
  for (int a = 0; a < spec.mesh().ndim(); ++a)
    if (spec.placement(a).is_partial()) terms *= spec.mesh().size(a);
  return terms;
}

bool copies(const ShardSpec& spec) {
  for (int a = 0; a < spec.mesh().ndim(); ++a)
    if (spec.placement(a).is_replicate() && spec.mesh().size(a) > 1) return true;
  return false;
}

// Reductions that are owed by more than one rank.
std::ptrdiff_t kinds_of(const ShardSpec& spec) {
  std::set<ReduceOp> kinds;
  for (int a = 0; a < spec.mesh().ndim(); ++a)
    if (spec.placement(a).is_partial() && spec.mesh().size(a) > 1) kinds.insert(spec.placement(a).op);
  return static_cast<std::ptrdiff_t>(kinds.size());
}

// What is owed is made before anything moves: terms of two reductions, and those that several ranks need.
bool made_first(const ShardSpec& from, const ShardSpec& to) { return copies(to) || kinds_of(from) > 1; }

// Elements that this rank must be sent. Sums that are made on the way bring every term that is not here.
std::int64_t awaited(const ShardSpec& from, const ShardSpec& to) {
  if (idle(to)) return 0;
  const std::set<std::int64_t> held = elements_of(from);
  const int terms = made_first(from, to) ? 1 : terms_of(from);
  std::int64_t count = 0;
  for (const std::int64_t e : elements_of(to)) count += terms - (held.count(e) != 0 ? 1 : 0);
  return count;
}

std::int64_t over_all_ranks(std::int64_t mine) {
  const Array a = Array::full({1}, static_cast<double>(mine), DType::I64);
  test_world().all_reduce(a, ReduceOp::Sum).wait();
  return static_cast<std::int64_t>(a.at(0));
}

std::ptrdiff_t count_of(const Recorder& recorder, std::string_view kind) {
  const auto& records = recorder.records();
  return std::count_if(records.begin(), records.end(), [&](const CommRecord& r) { return r.kind == kind; });
}

}  // namespace

TEST_CASE("redistribute between two meshes keeps the global tensor and sends what is missing", "[mesh]") {
  auto random = test_random(41);
  const std::vector<DeviceMesh> meshes = some_meshes(random, 12);
  const std::vector<DType> dtypes{DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32};
  Recorder& recorder = test_world().recorder();
  for (int trial = 0; trial < trials(400); ++trial) {
    const DeviceMesh& left = pick(random, meshes);
    const DeviceMesh& entered = pick(random, meshes);
    if (left == entered) continue;
    const DType dtype = pick(random, dtypes);
    const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 0, 3)), 6);
    const SpecPtr from = random_spec(random, left, sizes, {.partial = true, .mixed = true});
    const SpecPtr to = random_spec(random, entered, sizes, {.partial = true, .mixed = true});
    INFO(name_of(dtype) << " " << from->str() << " to " << to->str());
    const Array local = local_part(*from, left.rank(), coded, dtype);
    const std::vector<double> before = local.to_vector();
    recorder.start();
    const Array moved = redistribute(local, from, to);
    recorder.stop();
    CHECK(moved.sizes() == to->local_sizes());
    CHECK(count_of(recorder, "exchange") <= 1);
    CHECK(count_of(recorder, "all_reduce") <= (made_first(*from, *to) ? kinds_of(*from) : 0));
    CHECK(count_of(recorder, "exchange") + count_of(recorder, "all_reduce") ==
          static_cast<std::ptrdiff_t>(recorder.records().size()));
    const std::int64_t sent = recorder.bytes("exchange");
    CHECK(over_all_ranks(sent) == over_all_ranks(awaited(*from, *to) * size_of(dtype)));
    const SpecPtr made = without_partial(*to);
    CHECK(redistribute(moved, to, made).to_vector() == expected_part(*made, entered.rank(), coded));
    CHECK(local.to_vector() == before);
  }
}

TEST_CASE("a mesh reshaped over a row of the ranks, by hand", "[mesh]") {
  const Communicator world = test_world();
  if (world.size() != 4) return;
  const DeviceMesh line(world, {{"domain", 4}});
  const DeviceMesh grid(world, {{"ddp", 2}, {"domain", 2}});
  const DeviceMesh turned(world.subgroup({{3, 2, 1, 0}}), {{"domain", 4}});
  const SpecPtr rows = ShardSpec::make(line, {Shard(0)}, {8});
  const Array mine = local_part(*rows, line.rank(), coded, DType::F64);
  const auto on = [&](const SpecPtr& to) { return redistribute(mine, rows, to).to_vector(); };
  const auto first = static_cast<double>(world.rank() * 2);
  CHECK(on(ShardSpec::make(turned, {Shard(0)}, {8})) == std::vector<double>{7 - first, 8 - first});
  // Halves, on both rows of the grid.
  const double half = world.rank() % 2 == 0 ? 0 : 4;
  CHECK(on(ShardSpec::make(grid, {Replicate(), Shard(0)}, {8})) ==
        std::vector<double>{half + 1, half + 2, half + 3, half + 4});
  // The same quarters: nothing moves, and nothing is copied.
  Recorder& recorder = world.recorder();
  recorder.start();
  const Array same = redistribute(mine, rows, ShardSpec::make(grid, {Shard(0), Shard(0)}, {8}));
  recorder.stop();
  CHECK(recorder.records().empty());
  CHECK(same.raw() == mine.raw());
}

TEST_CASE("a change of mesh is planned once while both meshes live, and keeps neither", "[mesh]") {
  auto random = test_random(42);
  const int ranks = test_world().size();
  const DeviceMesh left = mesh_over(test_world(), {ranks});
  const std::int64_t& planned = left.cache()->planned;
  std::weak_ptr<MeshCore> core;
  const SpecPtr from = ShardSpec::make(left, {Shard(0)}, {9, 2});
  const Array local = local_part(*from, left.rank(), coded, DType::F32);
  {
    const DeviceMesh entered = mesh_over(test_world(), {1, ranks});
    core = entered.core();
    for (const Placement& p : {Placement(Shard(1)), Placement(Replicate()), Placement(Partial())}) {
      redistribute(local, from, ShardSpec::make(entered, {p, p}, {9, 2}));
      const std::int64_t before = planned;
      for (int again = 0; again < 3; ++again)  // specs that are made anew are the same
        redistribute(local, from, ShardSpec::make(entered, {p, p}, {9, 2}));
      CHECK(planned == before);
    }
    redistribute(local, from, ShardSpec::make(entered, {Shard(0), Shard(1)}, {9, 2}));
    CHECK(planned == 4);
  }
  CHECK(core.expired());
  // Not remembered for a mesh that has taken the place of another one.
  for (int trial = 0; trial < 20; ++trial) {
    const DeviceMesh entered = some_meshes(random, 3).back();
    const SpecPtr to = random_spec(random, entered, {9, 2});
    CHECK(redistribute(local, from, to).to_vector() == expected_part(*to, entered.rank(), coded));
  }
}

TEST_CASE("terms of several reductions, on one mesh and on two", "[mesh]") {
  const int ranks = test_world().size();
  const int half = ranks % 2 == 0 ? 2 : 1;
  const DeviceMesh here(test_world(), {{"a", half}, {"b", ranks / half}});
  const DeviceMesh there(test_world(), {{"c", ranks / half}, {"d", half}});
  const std::vector<ReduceOp> ops{ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product};
  for (const ReduceOp first : ops)
    for (const ReduceOp second : ops)
      for (const DeviceMesh& mesh : {here, there})
        for (const Placements& before :
             {Placements{Replicate(), Replicate()}, Placements{Shard(0), Shard(1)},
              Placements{Partial(first), Replicate()}, Placements{Partial(first), Shard(0)}}) {
          const SpecPtr from = ShardSpec::make(here, before, {5, 3});
          const SpecPtr owed = ShardSpec::make(mesh, {Partial(first), Partial(second)}, {5, 3});
          const SpecPtr whole = ShardSpec::replicated(here, {5, 3});
          INFO(from->str() << " to " << owed->str());
          const Array local = local_part(*from, here.rank(), coded, DType::F64);
          const Array terms = redistribute(local, from, owed);
          CHECK(redistribute(terms, owed, whole).to_vector() == expected_part(*whole, here.rank(), coded));
        }
}

TEST_CASE("a mesh of other ranks is refused before anything is sent, alike on every rank", "[mesh]") {
  const Communicator world = test_world();
  const int ranks = world.size();
  if (ranks == 1) return;
  const DeviceMesh all(world, {{"all", ranks}});
  std::vector<int> front(static_cast<std::size_t>(ranks - 1));
  std::iota(front.begin(), front.end(), 0);
  const Communicator some = world.subgroup({front, {ranks - 1}});
  const DeviceMesh part(some, {{"part", some.size()}});
  const SpecPtr owed = ShardSpec::make(all, {Partial()}, {4});
  const Array local = Array::zeros({4}, DType::F32);
  Recorder& recorder = world.recorder();
  for (const bool back : {false, true}) {
    const SpecPtr other = ShardSpec::replicated(part, {4});
    recorder.start();
    const std::string text =
        refusal([&] { back ? redistribute(local, other, owed) : redistribute(local, owed, other); });
    recorder.stop();
    CHECK(contains(text, "redistribute: the meshes are made of different ranks"));
    CHECK(contains(text, "all=" + std::to_string(ranks)));
    CHECK(contains(text, "part=" + std::to_string(some.size())));
    CHECK(contains(text, "an empty part"));
    CHECK(recorder.records().empty());
  }
  // What is advised: the last rank holds nothing.
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
  lengths[0] = 4;
  const SpecPtr first = ShardSpec::from_lengths(all, {Shard(0)}, {4}, {lengths});
  CHECK(redistribute(local, owed, first).numel() == (world.rank() == 0 ? 4 : 0));
}
