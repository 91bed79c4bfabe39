// Meshes and specs: what is refused and how it is said, interning, and the arithmetic of windows.
#include <catch2/catch.hpp>

#include "comm/virtual.h"
#include "mesh/layout.h"
#include "mesh/mesh_state.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

DeviceMesh mesh_of_ranks(const std::vector<MeshAxis>& axes, int rank = 0) {
  int ranks = 1;
  for (const MeshAxis& a : axes) ranks *= a.size;
  return {recording_communicator(rank, ranks), axes};
}

std::string refused_cut(const DeviceMesh& mesh, const DimCut& cut, std::int64_t n) {
  return refusal([&] { ShardSpec::make(mesh, {Shard(0)}, {n}, {cut}); });
}

// Window arithmetic the slow way: the input positions that output o reads.
std::vector<std::int64_t> taps(const Window& w, std::int64_t o) {
  std::vector<std::int64_t> list;
  for (std::int64_t k = 0; k < w.kernel; ++k) list.push_back(o * w.stride - w.pad_lo + w.dilation * k);
  return list;
}

Window random_window(Random& random, std::int64_t n) {
  Window w;
  w.kernel = random_int(random, 1, 6);
  w.stride = random_int(random, 1, 4);
  w.dilation = random_int(random, 1, 3);
  if (chance(random, 40)) w.mode = PaddingMode::Circular;
  w.pad_lo = random_int(random, 0, w.reads_beyond() ? n : 5);
  w.pad_hi = random_int(random, 0, w.reads_beyond() ? n : 5);
  return w;
}

void check_window(Random& random, const Window& w, std::int64_t n) {
  INFO("n " << n << " kernel " << w.kernel << " stride " << w.stride << " pads " << w.pad_lo << "/"
            << w.pad_hi << " dilation " << w.dilation);
  std::int64_t outputs = 0;
  while (taps(w, outputs).back() < n + w.pad_hi) ++outputs;
  REQUIRE(w.output_size(n) == outputs);
  const std::int64_t lo = random_int(random, 0, outputs);
  const std::int64_t hi = random_int(random, lo, outputs);
  const Interval need = w.input_of({lo, hi});
  if (lo == hi) {
    REQUIRE(need.empty());
  } else {
    REQUIRE(need == Interval{taps(w, lo).front(), taps(w, hi - 1).back() + 1});
  }

  const int parts = static_cast<int>(random_int(random, 1, 6));
  const DimCut input = cut_from_lengths({0}, random_lengths(random, n, parts));
  const DimCut cut = window_output_cut(input, w, n);
  REQUIRE(cut.parts.size() == input.parts.size());
  std::vector<int> owner(static_cast<std::size_t>(outputs), -1);
  for (std::size_t p = 0; p < cut.parts.size(); ++p)
    for (const Interval i : cut.parts[p])
      for (std::int64_t o = i.lo; o < i.hi; ++o) {
        REQUIRE(owner.at(static_cast<std::size_t>(o)) == -1);
        owner[static_cast<std::size_t>(o)] = static_cast<int>(p);
      }
  for (std::int64_t o = 0; o < outputs; ++o) {
    const std::int64_t middle = o * w.stride - w.pad_lo + w.dilation * (w.kernel - 1) / 2;
    const int holder = owner[static_cast<std::size_t>(o)];
    REQUIRE(holder >= 0);
    if (n == 0) continue;
    const std::int64_t inside = std::clamp<std::int64_t>(middle, 0, n - 1);
    const Intervals& theirs = input.parts[static_cast<std::size_t>(holder)];
    REQUIRE((inside >= theirs.front().lo && inside < theirs.front().hi));
  }
}

}  // namespace

TEST_CASE("meshes that do not fit are refused with the numbers", "[mesh]") {
  const Communicator six = recording_communicator(0, 6);
  CHECK(refusal([&] {
          DeviceMesh(six, {{"ddp", 2}, {"domain", 2}});
        }) == "DeviceMesh: mesh ddp=2,domain=2 needs 4 ranks, the communicator has 6");
  CHECK(contains(refusal([&] { DeviceMesh(six, {{"x", 2}, {"x", 3}}); }), "'x'"));
  CHECK(contains(refusal([&] { DeviceMesh(six, {{"x", 6}, {"y", 0}}); }), "axis y has size 0"));
  CHECK(contains(refusal([&] { DeviceMesh(six, {}); }), "0 axes"));
  CHECK(contains(refusal([&] { DeviceMesh(Communicator(), {{"x", 1}}); }), "undefined"));
  const DeviceMesh mesh(six, {{"ddp", 2}, {"domain", 3}});
  CHECK(contains(refusal([&] { mesh["model"]; }), "no axis named 'model', the mesh is ddp=2,domain=3"));
  CHECK(contains(refusal([&] { mesh.submesh({"domain", "ddp"}); }), "ddp=2,domain=3"));
}

TEST_CASE("ranks of a mesh are row-major and sub-meshes run through this rank", "[mesh]") {
  for (int r = 0; r < 12; ++r) {
    const DeviceMesh mesh = mesh_of_ranks({{"a", 2}, {"b", 3}, {"c", 2}}, r);
    CHECK(mesh.rank() == r);
    CHECK(mesh.coordinate(0) == r / 6);
    CHECK(mesh.coordinate(1) == r / 2 % 3);
    CHECK(mesh.coordinate(2) == r % 2);
    CHECK(mesh["b"].size() == 3);
    CHECK(mesh["b"].rank() == r / 2 % 3);
    CHECK(mesh["b"] == mesh["b"]);
    const DeviceMesh outer = mesh.submesh({"a", "c"});
    CHECK(outer.rank() == r / 6 * 2 + r % 2);
    CHECK(outer["c"].rank() == r % 2);
    CHECK(mesh.group(0b010).rank() == r / 2 % 3);
    CHECK(mesh.group(0b101).rank() == outer.rank());
    CHECK(mesh.group(0b111).size() == 12);
  }
}

TEST_CASE("specs that do not fit are refused with the numbers", "[mesh]") {
  const DeviceMesh three = mesh_of_ranks({{"d", 3}});
  CHECK(contains(refusal([&] {
                   ShardSpec::make(three, {Shard(0), Shard(1)}, {4, 4});
                 }),
                 "2 placements given, the mesh d=3 has 1 axes"));
  CHECK(contains(refusal([&] {
                   ShardSpec::make(three, {Shard(2)}, {4, 5});
                 }),
                 "Shard(2) of a tensor of 2 dims"));
  CHECK(contains(refusal([&] { ShardSpec::make(three, {Shard(-3)}, {4, 5}); }), "Shard(-3)"));
  CHECK(ShardSpec::make(three, {Shard(-1)}, {4, 5}) == ShardSpec::make(three, {Shard(1)}, {4, 5}));
  CHECK(contains(refused_cut(three, {{0}, {{{0, 2}}, {{2, 4}}}}, 4),
                 "dim 0 is cut into 2 parts, its mesh axes have 3 ranks"));
  const char* tile = "must tile [0, 5) exactly once";
  CHECK(contains(refused_cut(three, {{0}, {{{0, 2}}, {{2, 4}}, {}}}, 5), tile));        // 4 is missing
  CHECK(contains(refused_cut(three, {{0}, {{{0, 2}}, {{1, 4}}, {{4, 5}}}}, 5), tile));  // 1 twice
  CHECK(contains(refused_cut(three, {{0}, {{{0, 2}}, {{3, 4}}, {{4, 5}}}}, 5), tile));  // a gap
  CHECK(contains(refused_cut(three, {{0}, {{{0, 2}}, {{2, 6}}, {}}}, 5), "[2,6)"));     // beyond the end
  CHECK(contains(refused_cut(three, {{0}, {{{0, 3}}, {{3, 2}}, {{2, 5}}}}, 5), tile));  // backwards
  CHECK(contains(refused_cut(three, {{0}, {{{-1, 3}}, {{3, 5}}, {}}}, 5), tile));
  CHECK(contains(refused_cut(three, {{1}, {{{0, 3}}, {{3, 5}}, {}}}, 5), "other mesh axes"));
  CHECK(refused_cut(three, {{0}, {{{3, 5}, {0, 1}}, {{9, 9}}, {{1, 3}}}}, 5) == "");  // any order, empty ones
  CHECK(contains(refusal([&] {
                   ShardSpec::make(three, {Replicate()}, {5},
                                   {cut_from_lengths({0}, std::vector<std::int64_t>{2, 2, 1})});
                 }),
                 "no axis of"));
  CHECK(contains(refusal([&] { ShardSpec::from_lengths(three, {Shard(0)}, {5}, {{2, 2, 2}}); }), "sum to 6"));
  CHECK(contains(refusal([&] { ShardSpec::from_lengths(three, {Shard(0)}, {5}, {{2, 3}}); }), "2 lengths"));
  CHECK(contains(refusal([&] {
                   ShardSpec::from_lengths(three, {Shard(0)}, {5}, {{-1, 3, 3}});
                 }),
                 "length -1"));
  CHECK(contains(refusal([&] {
                   ShardSpec::from_lengths(three, {Replicate()}, {5}, {{5, 5, 5}});
                 }),
                 "3 lengths given for mesh axis 0"));
  CHECK(contains(refusal([&] {
                   ShardSpec::from_lengths(three, {Partial()}, {5}, {{3, 3}});
                 }),
                 "which is Partial(sum)"));
  CHECK(contains(refusal([&] {
                   ShardSpec::from_lengths(three, {Shard(0)}, {5}, {{1, 2, 2}, {}});
                 }),
                 "2 lists of lengths given"));
  CHECK(contains(refusal([&] { ShardSpec::make(three, {Shard(0)}, {-4}); }), "dim 0 has size -4 in [-4]"));
  CHECK(contains(refusal([&] { ShardSpec::make(three, {Replicate()}, {5, -1}); }), "dim 1 has size -1"));
  CHECK(contains(refusal([&] { ShardSpec::make(DeviceMesh(), {Shard(0)}, {5}); }), "undefined"));
}

TEST_CASE("local sizes follow the intervals", "[mesh]") {
  auto random = test_random(10);
  for (int trial = 0; trial < trials(300); ++trial) {
    const std::vector<int> shape = random_mesh_sizes(random, static_cast<int>(random_int(random, 1, 7)));
    const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 0, 3)), 9);
    const SpecFacts facts = random_facts(random, shape, sizes, {.partial = true});
    int ranks = 1;
    for (const int s : shape) ranks *= s;
    const DeviceMesh mesh = mesh_over(recording_communicator(ranks - 1, ranks), shape);
    const SpecPtr spec = facts.on(mesh);
    CHECK(spec->local_sizes() == spec->local_sizes(ranks - 1));
    std::int64_t held = 0;
    for (int r = 0; r < ranks; ++r) held += numel_of(spec->local_sizes(r));
    std::int64_t copies = 1;
    for (int a = 0; a < mesh.ndim(); ++a) copies *= spec->placement(a).is_shard() ? 1 : mesh.size(a);
    CHECK(held == copies * numel_of(sizes));
    CHECK(without_partial(*spec)->local_sizes() == spec->local_sizes());
    CHECK(same_layout(*spec, *without_partial(*spec)));
  }
}

TEST_CASE("equal specs are one object, different ones are not", "[mesh]") {
  auto random = test_random(11);
  const DeviceMesh mesh = mesh_of_ranks({{"a", 2}, {"b", 3}});
  for (int trial = 0; trial < trials(300); ++trial) {
    const Dims sizes = random_sizes(random, 2, 6);
    const SpecFacts facts = random_facts(random, {2, 3}, sizes, {.partial = true});
    const SpecPtr one = facts.on(mesh);
    CHECK(one == facts.on(mesh));
    const SpecPtr other = random_facts(random, {2, 3}, sizes, {.partial = true}).on(mesh);
    CHECK((one == other) == (one->placements() == other->placements() && same_layout(*one, *other)));
  }
  const SpecPtr even = ShardSpec::make(mesh, {Shard(0), Replicate()}, {6, 4});
  CHECK(even == ShardSpec::from_lengths(mesh, {Shard(0), Replicate()}, {6, 4}, {{3, 3}, {}}));
  CHECK(even != ShardSpec::from_lengths(mesh, {Shard(0), Replicate()}, {6, 4}, {{4, 2}, {}}));
  // Pieces that touch are one piece.
  CHECK(even == ShardSpec::make(mesh, {Shard(0), Replicate()}, {6, 4},
                                {DimCut{{0}, {{{0, 1}, {1, 1}, {1, 3}}, {{3, 6}}}}, std::nullopt}));
  // The same intervals under another nesting are the same cut only by chance; the order is part of it.
  const auto outer_a = DimCut{{0, 1}, {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}, {{4, 5}}, {{5, 6}}}};
  auto outer_b = outer_a;
  outer_b.axes = {1, 0};
  CHECK(ShardSpec::make(mesh, {Shard(0), Shard(0)}, {6}, {outer_a}) !=
        ShardSpec::make(mesh, {Shard(0), Shard(0)}, {6}, {outer_b}));
  CHECK(ShardSpec::replicated(mesh, {6, 4}) == ShardSpec::make(mesh, {Replicate(), Replicate()}, {6, 4}));
}

TEST_CASE("a spec in words tells which axis cuts a dim first", "[mesh]") {
  const DeviceMesh mesh = mesh_of_ranks({{"lat", 2}, {"lon", 2}});
  DimCut cut = cut_from_lengths({0, 1}, std::vector<std::int64_t>{1, 1, 1, 3});
  const std::string outer_lat = ShardSpec::make(mesh, {Shard(0), Shard(0)}, {6}, {cut})->str();
  cut.axes = {1, 0};
  const std::string outer_lon = ShardSpec::make(mesh, {Shard(0), Shard(0)}, {6}, {cut})->str();
  CHECK(contains(outer_lat, "dim 0 cut by lat, then lon: [0,1) [1,2) [2,3) [3,6)"));
  CHECK(contains(outer_lon, "dim 0 cut by lon, then lat: [0,1) [1,2) [2,3) [3,6)"));
  CHECK(contains(ShardSpec::make(mesh, {Shard(0), Replicate()}, {6})->str(), "dim 0 cut [0,3) [3,6)"));
}

TEST_CASE("many shapes leave the table of specs small", "[mesh]") {
  const DeviceMesh mesh = mesh_of_ranks({{"d", 4}});
  for (std::int64_t n = 0; n < 100'000; ++n) ShardSpec::make(mesh, {Shard(0)}, {n, 3});
  CHECK(mesh.cache()->specs.size() < 4096);
}

TEST_CASE("a spec outlives the last handle of its mesh", "[mesh]") {
  SpecPtr from;
  SpecPtr to;
  {
    const DeviceMesh mesh = mesh_of_ranks({{"d", 4}}, 1);
    from = ShardSpec::make(mesh, {Shard(0)}, {8, 3});
    to = ShardSpec::make(mesh, {Shard(1)}, {8, 3});
  }
  CHECK(from->mesh().size() == 4);
  CHECK(redistribute_plan(from, to)->sent_elements() == 4);
  CHECK(with_placements(*from, {Replicate()})->is_replicated());
}

TEST_CASE("windows: sizes, what is read, who owns the outputs", "[mesh]") {
  auto random = test_random(12);
  for (int trial = 0; trial < trials(3000); ++trial) {
    const std::int64_t n = random_int(random, 0, 20);
    check_window(random, random_window(random, n), n);
  }
}

TEST_CASE("window segments wrap, turn back, stay or stop at the border", "[mesh]") {
  auto random = test_random(13);
  for (int trial = 0; trial < trials(2000); ++trial) {
    const std::int64_t n = random_int(random, 0, 7);
    const std::int64_t lo = random_int(random, -12, 12);
    const Interval need{lo, lo + random_int(random, 0, 20)};
    const PaddingMode mode = random_mode(random);
    const LocalLayout layout{{window_segments(need, n, mode)}, {need.length()}};
    const std::vector<std::int64_t> at = positions(layout, 0);
    for (std::int64_t i = 0; i < need.length(); ++i) {
      const std::int64_t p = need.lo + i;
      std::int64_t expected = n > 0 ? p : -1;
      while (n > 0 && mode != PaddingMode::Zeros && (expected < 0 || expected >= n)) {
        const bool before = expected < 0;
        if (mode == PaddingMode::Circular) expected += before ? n : -n;
        if (mode == PaddingMode::Replicate) expected = before ? 0 : n - 1;
        if (mode == PaddingMode::Reflect) expected = n == 1 ? 0 : before ? -expected : 2 * (n - 1) - expected;
      }
      if (expected < 0 || expected >= n) expected = -1;
      REQUIRE(at[static_cast<std::size_t>(i)] == expected);
    }
  }
}
