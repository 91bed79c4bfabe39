// Plans without MPI: every rank's view of thousands of random partitions, put side by side.
#include <catch2/catch.hpp>
#include <numeric>

#include "comm/virtual.h"
#include "mesh/mesh_state.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

// The same mesh as every one of its ranks sees it.
std::vector<DeviceMesh> seen_by_all(const std::vector<int>& sizes) {
  int ranks = 1;
  for (const int s : sizes) ranks *= s;
  std::vector<DeviceMesh> meshes;
  for (int r = 0; r < ranks; ++r) meshes.push_back(mesh_over(recording_communicator(r, ranks), sizes));
  return meshes;
}

// Linear positions in a buffer of the elements of a piece, row-major.
std::vector<std::int64_t> elements_of(const Dims& first, const Dims& extent, const Dims& sizes) {
  std::vector<std::int64_t> list{0};
  for (int d = 0; d < sizes.size(); ++d) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t outer : list)
      for (std::int64_t i = 0; i < extent[d]; ++i) finer.push_back(outer * sizes[d] + first[d] + i);
    list = std::move(finer);
  }
  return list;
}

std::vector<std::int64_t> sent_by(const PeerPieces& peer, const Dims& sizes) {
  std::vector<std::int64_t> list;
  for (const ExchangePiece& p : peer.pieces)
    for (const std::int64_t i : elements_of(p.from, p.extent, sizes)) list.push_back(i);
  return list;
}
std::vector<std::int64_t> received_by(const PeerPieces& peer, const Dims& sizes) {
  std::vector<std::int64_t> list;
  for (const ExchangePiece& p : peer.pieces)
    for (const std::int64_t i : elements_of(p.to, p.extent, sizes)) list.push_back(i);
  return list;
}

// Of several pieces that happen to follow one another, a plan need not know it.
bool tells_one_run(const PeerPieces& peer, const std::vector<std::int64_t>& places) {
  bool one_run = true;
  for (std::size_t i = 1; i < places.size(); ++i) one_run = one_run && places[i] == places[i - 1] + 1;
  return peer.one_run_there == (one_run && peer.pieces.size() == 1);
}

const PeerPieces* from_peer(const std::vector<PeerPieces>& list, int peer) {
  const PeerPieces* found = nullptr;
  for (const PeerPieces& p : list)
    if (p.peer == peer) {
      if (found != nullptr) return nullptr;  // two messages to one peer
      found = &p;
    }
  return found;
}

// All ranks' plans and what their buffers hold and want (global indices, -1: nothing).
struct Views {
  std::vector<ExchangePlan> plans;
  std::vector<std::vector<std::int64_t>> held;
  std::vector<std::vector<std::int64_t>> wanted;
};

// Message by message, element by element. Returns what is wrong, or "". `source_ok(from, to)`: whether that
// rank is the one to take elements from.
std::string check_views(const Views& v, const std::function<bool(int, int)>& source_ok) {
  const int ranks = static_cast<int>(v.plans.size());
  std::int64_t messages = 0;
  std::int64_t awaited = 0;
  for (int r = 0; r < ranks; ++r) {
    const ExchangePlan& mine = v.plans[static_cast<std::size_t>(r)];
    const std::vector<std::int64_t>& wanted = v.wanted[static_cast<std::size_t>(r)];
    std::vector<int> arrived(wanted.size(), 0);
    messages += static_cast<std::int64_t>(mine.sends.size());
    awaited += static_cast<std::int64_t>(mine.recvs.size());
    auto take = [&](int peer, const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
      if (from.size() != to.size()) return fmt::format("rank {} sends another count to {}", peer, r);
      if (!from.empty() && !source_ok(peer, r)) return fmt::format("rank {} takes from {}", r, peer);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::int64_t got = v.held[static_cast<std::size_t>(peer)].at(static_cast<std::size_t>(from[i]));
        if (got != wanted.at(static_cast<std::size_t>(to[i])))
          return fmt::format("rank {} gets element {} of rank {}, wants {}", r, got, peer,
                             wanted[static_cast<std::size_t>(to[i])]);
        ++arrived[static_cast<std::size_t>(to[i])];
      }
      return std::string();
    };
    for (const PeerPieces& recv : mine.recvs) {
      const ExchangePlan& theirs = v.plans[static_cast<std::size_t>(recv.peer)];
      const PeerPieces* send = from_peer(theirs.sends, r);
      if (send == nullptr || send->elements != recv.elements || recv.peer == r)
        return fmt::format("rank {} waits for {}, which sends nothing like it", r, recv.peer);
      const auto elements = received_by(recv, mine.to_sizes);
      if (static_cast<std::int64_t>(elements.size()) != recv.elements) return "wrong count of elements";
      if (!tells_one_run(*send, elements))
        return fmt::format("rank {} is wrong about {}'s memory", recv.peer, r);
      if (auto wrong = take(recv.peer, sent_by(*send, theirs.from_sizes), elements); !wrong.empty())
        return wrong;
    }
    if (auto wrong = take(r, sent_by(mine.own, mine.from_sizes), received_by(mine.own, mine.to_sizes));
        !wrong.empty())
      return wrong;
    bool covers = true;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (arrived[i] != (wanted[i] < 0 ? 0 : 1))
        return fmt::format("element {} of rank {} arrives {} times", wanted[i], r, arrived[i]);
      covers = covers && arrived[i] > 0;
    }
    if (covers != mine.covers) return fmt::format("rank {}: covers is {}", r, mine.covers);
  }
  if (messages != awaited) return fmt::format("{} messages sent, {} awaited", messages, awaited);
  return "";
}

bool same_on_uncut_axes(const DeviceMesh& mesh, const ShardSpec& from, int a, int b) {
  for (int axis = 0; axis < mesh.ndim(); ++axis)
    if (!from.placement(axis).is_shard() && mesh.coordinate(axis, a) != mesh.coordinate(axis, b))
      return false;
  return true;
}

std::string redistribute_views(const std::vector<DeviceMesh>& meshes, const SpecFacts& from,
                               const SpecFacts& to) {
  Views views;
  for (const DeviceMesh& mesh : meshes) {
    const SpecPtr f = from.on(mesh);
    const SpecPtr t = to.on(mesh);
    views.plans.push_back(*redistribute_plan(f, t));
    views.held.push_back(global_indices(layout_of(*f, mesh.rank()), f->sizes()));
    views.wanted.push_back(global_indices(layout_of(*t, mesh.rank()), t->sizes()));
  }
  const SpecPtr f = from.on(meshes[0]);
  return check_views(views, [&](int a, int b) { return same_on_uncut_axes(meshes[0], *f, a, b); });
}

// Onto meshes of the same ranks in the order `order`: peers and layouts are numbered as on the mesh that is
// left.
std::string change_views(const std::vector<DeviceMesh>& meshes, const std::vector<DeviceMesh>& entered,
                         const SpecFacts& from, const SpecFacts& to) {
  Views views;
  for (std::size_t r = 0; r < meshes.size(); ++r) {
    const SpecPtr f = from.on(meshes[r]);
    const SpecPtr t = to.on(entered[r]);
    views.plans.push_back(*redistribute_plan(f, t));
    views.held.push_back(global_indices(layout_of(*f, meshes[r].rank()), f->sizes()));
    views.wanted.push_back(global_indices(layout_of(*t, entered[r].rank()), t->sizes()));
  }
  const SpecPtr f = from.on(meshes[0]);
  return check_views(views, [&](int a, int b) { return same_on_uncut_axes(meshes[0], *f, a, b); });
}

void check_many_changes(Random& random, int ranks, int count, std::int64_t most) {
  const std::vector<int> left = random_mesh_sizes(random, ranks);
  const std::vector<int> entered = random_mesh_sizes(random, ranks);
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<DeviceMesh> meshes = seen_by_all(left);
  std::vector<DeviceMesh> others;
  for (const DeviceMesh& mesh : meshes) others.push_back(mesh_over(mesh.comm().subgroup({order}), entered));
  for (int i = 0; i < count; ++i) {
    const Dims sizes = random_sizes(random, 2, most);
    const SpecFacts from = random_facts(random, left, sizes);
    const SpecFacts to = random_facts(random, entered, sizes);
    INFO(from.on(meshes[0])->str() << "\n to " << to.on(others[0])->str());
    REQUIRE(change_views(meshes, others, from, to) == "");
  }
}

std::string window_views(Random& random, const std::vector<DeviceMesh>& meshes, const SpecFacts& from) {
  const int ranks = static_cast<int>(meshes.size());
  const int dims = from.sizes.size();
  std::vector<PaddingMode> modes;
  for (int d = 0; d < dims; ++d) modes.push_back(random_mode(random));
  std::vector<LocalLayout> to(static_cast<std::size_t>(ranks));
  for (LocalLayout& layout : to)
    for (int d = 0; d < dims; ++d) {
      const std::int64_t lo = random_int(random, -5, from.sizes[d] + 2);
      const Interval need{lo, lo + random_int(random, 0, from.sizes[d] + 4)};
      layout.dims.push_back(window_segments(need, from.sizes[d], modes[static_cast<std::size_t>(d)]));
      layout.sizes.push_back(need.length());
    }
  Views views;
  const SpecPtr f = from.on(meshes[0]);
  const auto matches = [&](int a, int b) { return same_on_uncut_axes(meshes[0], *f, a, b); };
  for (int r = 0; r < ranks; ++r) {
    const ExchangeProblem problem{ranks, r, [&](int rank) { return layout_of(*f, rank); },
                                  [&](int rank) { return to[static_cast<std::size_t>(rank)]; }, matches};
    views.plans.push_back(plan_exchange(problem));
    views.held.push_back(global_indices(layout_of(*f, r), f->sizes()));
    views.wanted.push_back(global_indices(to[static_cast<std::size_t>(r)], f->sizes()));
  }
  return check_views(views, matches);
}

void check_many_plans(const std::vector<int>& mesh_sizes, int dims, int count, std::int64_t most,
                      std::uint64_t stream) {
  auto random = test_random(stream);
  const std::vector<DeviceMesh> meshes = seen_by_all(mesh_sizes);
  for (int i = 0; i < count; ++i) {
    const Dims sizes = random_sizes(random, dims, most);
    const SpecFacts from = random_facts(random, mesh_sizes, sizes);
    const SpecFacts to = random_facts(random, mesh_sizes, sizes);
    INFO(from.on(meshes[0])->str() << "\n to " << to.on(meshes[0])->str());
    REQUIRE(redistribute_views(meshes, from, to) == "");
    REQUIRE(window_views(random, meshes, from) == "");
  }
}

}  // namespace

TEST_CASE("the default partition tiles and is even to one element", "[mesh]") {
  for (std::int64_t n = 0; n < 70; ++n)
    for (int parts = 1; parts < 70; ++parts) {
      const Intervals list = default_partition(n, parts);
      REQUIRE(static_cast<int>(list.size()) == parts);
      std::int64_t at = 0;
      for (int i = 0; i < parts; ++i) {
        REQUIRE(list[static_cast<std::size_t>(i)].lo == at);
        at = list[static_cast<std::size_t>(i)].hi;
        REQUIRE(list[static_cast<std::size_t>(i)].length() == n / parts + (i < n % parts ? 1 : 0));
      }
      REQUIRE(at == n);
    }
}

TEST_CASE("redistributions and windows seen from every rank", "[mesh]") {
  auto random = test_random(1);
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (int dims = 1; dims <= 3; ++dims)
      for (int shape = 0; shape < 3; ++shape)
        check_many_plans(random_mesh_sizes(random, ranks), dims, trials(dims == 3 ? 10 : 30),
                         dims == 3 ? 5 : 9, random());
  check_many_plans({2, 3, 2}, 2, trials(20), 7, 77);
  check_many_plans({2, 2, 2}, 3, trials(10), 4, 78);
}

TEST_CASE("changes of mesh seen from every rank", "[mesh]") {
  auto random = test_random(6);
  for (int ranks = 1; ranks <= 7; ++ranks)
    for (int shape = 0; shape < 4; ++shape) check_many_changes(random, ranks, trials(30), 9);
  check_many_changes(random, 12, trials(20), 9);
  check_many_changes(random, 64, trials(3), 20);
}

TEST_CASE("redistributions and windows of 64 ranks", "[mesh]") {
  check_many_plans({64}, 1, trials(4), 200, 2);
  check_many_plans({64}, 2, trials(2), 20, 3);
  check_many_plans({8, 8}, 2, trials(4), 20, 4);
  check_many_plans({4, 4, 4}, 3, trials(2), 6, 5);
}

TEST_CASE("a plan is silent on all ranks or on none", "[mesh]") {
  const std::vector<DeviceMesh> meshes = seen_by_all({3});
  const SpecFacts from{{Shard(0)}, {4}, {cut_from_lengths({0}, std::vector<std::int64_t>{2, 2, 0})}};
  const SpecFacts to{{Shard(0)}, {4}, {cut_from_lengths({0}, std::vector<std::int64_t>{3, 1, 0})}};
  for (const DeviceMesh& mesh : meshes) {
    CHECK_FALSE(redistribute_plan(from.on(mesh), to.on(mesh))->local_only());
    CHECK(redistribute_plan(from.on(mesh), from.on(mesh))->local_only());
  }
}
