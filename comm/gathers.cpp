// Collectives that only move: all_gather, gather, scatter, all_to_all, broadcast. Each is one exchange,
// except that a broadcast to many ranks goes down a binomial tree.
#include "comm/check.h"
#include "comm/collective.h"
#include "runtime/device.h"

namespace tessera {

namespace {

using Counts = std::span<const std::int64_t>;

constexpr int kDirectBroadcastRanks = 4;

// Bytes [at, at + bytes) of the contiguous array that are for or from `peer`, which may be this rank.
struct Block {
  int peer = 0;
  std::int64_t at = 0;
  std::int64_t bytes = 0;
};

struct Movement {
  Array in;   // undefined: nothing is sent
  Array out;  // undefined: nothing is received
  std::vector<Block> sends;
  std::vector<Block> recvs;
};

// One block per rank, beginning with this rank's right neighbour, so that not all ranks turn to rank 0 first.
std::vector<Block> blocks_by_rank(const Group& group, Counts counts, std::int64_t row_bytes) {
  const std::vector<std::int64_t> offsets = offsets_of(counts);
  std::vector<Block> blocks;
  for (int i = 1; i <= group.size(); ++i) {
    const int peer = (group.rank() + i) % group.size();
    const auto p = static_cast<std::size_t>(peer);
    blocks.push_back({peer, offsets[p] * row_bytes, counts[p] * row_bytes});
  }
  return blocks;
}

std::vector<Block> whole_to_all(const Group& group, std::int64_t bytes) {
  std::vector<Block> blocks;
  for (int i = 1; i <= group.size(); ++i) blocks.push_back({(group.rank() + i) % group.size(), 0, bytes});
  return blocks;
}

void copy_own_block(const Group& group, const Movement& m, const Array& to, const Array& from) {
  for (const Block& r : m.recvs) {
    if (r.peer != group.rank() || r.bytes == 0) continue;
    for (const Block& s : m.sends) {
      char* target = bytes_of(to) + r.at;
      const char* source = bytes_of(from) + s.at;
      if (s.peer == group.rank() && target != source) copy_bytes(to.device(), target, source, r.bytes);
    }
  }
}

Work start_movement(const std::shared_ptr<Group>& group, const Call& call, const Movement& m) {
  auto state = std::make_shared<Work::State>(group, call);
  state->set_device(m.in.defined() ? m.in.device() : m.out.device());
  Phase& phase = state->add_phase(0);
  Array source;
  if (m.in.defined()) {
    source = m.in.contiguous();
    state->keep(source);
  }
  if (m.out.defined()) {
    const Target target(m.out, Target::Load::No);
    state->keep(target.packed());
    for (const Block& b : m.recvs) {
      if (b.peer != group->rank()) phase.recv(b.peer, bytes_of(target.packed()) + b.at, b.bytes);
    }
    if (m.in.defined()) copy_own_block(*group, m, target.packed(), source);
    phase.finish = [target] { target.store(); };
  }
  for (const Block& b : m.sends) {
    if (b.peer != group->rank()) phase.send(b.peer, bytes_of(source) + b.at, b.bytes);
  }
  state->start();
  return Work(std::move(state));
}

Work start_all_gather(const std::shared_ptr<Group>& group, const Call& call, const Array& out,
                      const Array& in, Counts counts) {
  check_counts(call, *group, counts, rows_of(out).count);
  const std::int64_t own = counts[static_cast<std::size_t>(group->rank())];
  COMM_CHECK(rows_of(in).count == own, call, "in has {} rows, but the count of rank {} is {}",
             rows_of(in).count, group->rank(), own);
  if (!begin_collective(*group, call, in, in.nbytes())) return {};
  return start_movement(
      group, call,
      {in, out, whole_to_all(*group, in.nbytes()), blocks_by_rank(*group, counts, rows_of(out).bytes)});
}

void check_pair(const Call& call, const Array& out, const Array& in) {
  check_readable(call, in, "in");
  check_writable(call, out, "out");
  check_alike(call, out, in);
}

// Rank v (counted from the root) gets from v without its lowest set bit, and passes on to v + 2^k below that
// bit.
void add_tree(Work::State& state, const Array& array, int root) {
  const Group& group = state.group();
  const int size = group.size();
  const int v = (group.rank() - root + size) % size;
  const auto peer = [&](int relative) { return (relative + root) % size; };
  int bit = 1;
  while (bit < size && (v & bit) == 0) bit *= 2;
  if (v != 0) state.add_phase(0).recv(peer(v & ~bit), array.raw(), array.nbytes());
  Phase& down = state.add_phase(0);
  for (bit /= 2; bit > 0; bit /= 2) {
    if (v + bit < size) down.send(peer(v + bit), array.raw(), array.nbytes());
  }
}

}  // namespace

Work Communicator::all_gather(const Array& out, const Array& in, Site site) const {
  const Call call{"all_gather", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in});
  check_pair(call, out, in);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), rows_of(in).count);
  return start_all_gather(group_, call, out, in, counts);
}

Work Communicator::all_gather_v(const Array& out, const Array& in, Counts counts, Site site) const {
  const Call call{"all_gather_v", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in, .any_rows = true, .counts = counts});
  check_pair(call, out, in);
  return start_all_gather(group_, call, out, in, counts);
}

Work Communicator::broadcast(const Array& in_place, int root, Site site) const {
  const Call call{"broadcast", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in_place, .root = root});
  check_root(call, *group_, root);
  const bool is_root = rank() == root;
  is_root ? check_readable(call, in_place, "the array") : check_writable(call, in_place, "the array");
  if (!begin_collective(*group_, call, in_place, is_root ? in_place.nbytes() : 0)) return {};
  if (size() <= kDirectBroadcastRanks) {
    Movement m;
    if (is_root) {
      m.in = in_place;
      m.sends = whole_to_all(*group_, in_place.nbytes());
    } else {
      m.out = in_place;
      m.recvs = {{root, 0, in_place.nbytes()}};
    }
    return start_movement(group_, call, m);
  }
  auto state = std::make_shared<Work::State>(group_, call);
  state->set_device(in_place.device());
  if (is_root) {
    const Array source = in_place.contiguous();
    state->keep(source);
    add_tree(*state, source, root);
  } else {
    const Target target(in_place, Target::Load::No);
    state->keep(target.packed());
    add_tree(*state, target.packed(), root);
    state->last_phase().finish = [target] { target.store(); };
  }
  state->start();
  return Work(std::move(state));
}

Work Communicator::all_to_all(const Array& out, const Array& in, Site site) const {
  const Call call{"all_to_all", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in});
  check_pair(call, out, in);
  COMM_CHECK(rows_of(out).count == rows_of(in).count, call, "out has {} rows, in has {}", rows_of(out).count,
             rows_of(in).count);
  const std::vector<std::int64_t> counts = even_counts(call, *group_, rows_of(in).count);
  if (!begin_collective(*group_, call, in, in.nbytes())) return {};
  const std::vector<Block> blocks = blocks_by_rank(*group_, counts, rows_of(in).bytes);
  return start_movement(group_, call, {in, out, blocks, blocks});
}

Work Communicator::all_to_all_v(const Array& out, Counts recv_counts, const Array& in, Counts send_counts,
                                Site site) const {
  const Call call{"all_to_all_v", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in, .any_rows = true});
  check_pair(call, out, in);
  check_counts(call, *group_, recv_counts, rows_of(out).count);
  check_counts(call, *group_, send_counts, rows_of(in).count);
  const auto own = static_cast<std::size_t>(rank());
  COMM_CHECK(recv_counts[own] == send_counts[own], call, "this rank sends itself {} rows but receives {}",
             send_counts[own], recv_counts[own]);
  if (!begin_collective(*group_, call, in, in.nbytes())) return {};
  return start_movement(group_, call,
                        {in, out, blocks_by_rank(*group_, send_counts, rows_of(in).bytes),
                         blocks_by_rank(*group_, recv_counts, rows_of(out).bytes)});
}

Work Communicator::gather(const Array& out, const Array& in, int root, Site site) const {
  const Call call{"gather", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in, .root = root});
  check_root(call, *group_, root);
  check_readable(call, in, "in");
  const bool is_root = rank() == root;
  if (is_root) {
    check_pair(call, out, in);
    COMM_CHECK(rows_of(out).count == rows_of(in).count * size(), call,
               "out has {} rows, but {} ranks give {} each", rows_of(out).count, size(), rows_of(in).count);
  }
  if (!begin_collective(*group_, call, in, in.nbytes())) return {};
  Movement m{in, {}, {{root, 0, in.nbytes()}}, {}};
  if (is_root) {
    m.out = out;
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), rows_of(in).count);
    m.recvs = blocks_by_rank(*group_, counts, rows_of(in).bytes);
  }
  return start_movement(group_, call, m);
}

Work Communicator::scatter(const Array& out, const Array& in, int root, Site site) const {
  const Call call{"scatter", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &out, .root = root});
  check_root(call, *group_, root);
  check_writable(call, out, "out");
  const bool is_root = rank() == root;
  if (is_root) {
    check_pair(call, out, in);
    COMM_CHECK(rows_of(in).count == rows_of(out).count * size(), call,
               "in has {} rows, but {} ranks take {} each", rows_of(in).count, size(), rows_of(out).count);
  }
  if (!begin_collective(*group_, call, out, is_root ? in.nbytes() : 0)) return {};
  Movement m{{}, out, {}, {{root, 0, out.nbytes()}}};
  if (is_root) {
    m.in = in;
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), rows_of(out).count);
    m.sends = blocks_by_rank(*group_, counts, rows_of(out).bytes);
  }
  return start_movement(group_, call, m);
}

}  // namespace tessera
