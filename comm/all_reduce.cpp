// all_reduce and reduce_scatter. Whatever way the data goes, every element is combined in rank order, on one
// rank or in the same way on all, so results are the same bits on every rank and for every algorithm.
#include "comm/check.h"
#include "comm/collective.h"
#include "comm/gather_blocks.h"
#include "comm/reduce.h"
#include "runtime/device.h"

namespace tessera {

namespace {

using StatePtr = std::shared_ptr<Work::State>;

// Up to here everybody sends everything to everybody: one round instead of two. Two ranks send no more that
// way.
constexpr std::int64_t kSmallBytes = 16 * 1024;
constexpr std::int64_t kSmallBytesOfTwo = 64 * 1024;
// For many ranks the limit is on what a rank gathers.
constexpr std::int64_t kSmallGathered = 128 * 1024;

bool is_small(int ranks, std::int64_t bytes) {
  if (ranks == 2) return bytes <= kSmallBytesOfTwo;
  if (ranks > BlockGather::kDirectRanks) return bytes * ranks <= kSmallGathered;
  return bytes <= kSmallBytes;
}

void add_small(const StatePtr& state, const Target& target, ReduceOp op) {
  const Group& group = state->group();
  const Array& array = target.packed();
  const BlockGather gather(group.rank(), group.size(), array.nbytes());
  const Array scratch = scratch_bytes(gather.total_bytes(), array.device());
  copy_bytes(array.device(), bytes_of(scratch) + gather.place(group.rank()), array.raw(), array.nbytes());
  gather.add_phases(*state, bytes_of(scratch));
  state->keep(scratch);
  state->keep(array);
  state->last_phase().finish = [=, size = group.size()] {
    std::vector<const void*> blocks;
    blocks.reserve(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) blocks.push_back(bytes_of(scratch) + gather.place(r));
    reduce_blocks({array.dtype(), op, blocks, array.raw(), array.numel(), array.device()});
    target.store();
  };
}

// Everybody's piece [lo, hi) of `from` arrives at its owner, who reduces it.
struct SlabReduction {
  Array from;
  ReduceOp op = ReduceOp::Sum;
  std::vector<std::int64_t> offsets;  // elements, one entry more than ranks
  void* out = nullptr;                // this rank's slab
};

void add_slab_reduction(const StatePtr& state, const SlabReduction& slabs) {
  const Group& group = state->group();
  const int size = group.size();
  const int rank = group.rank();
  const std::int64_t item = size_of(slabs.from.dtype());
  const auto at = [&](int r) { return slabs.offsets[static_cast<std::size_t>(r)] * item; };
  const std::int64_t own = at(rank + 1) - at(rank);
  const Device device = slabs.from.device();
  const Array scratch = scratch_bytes(own * (size - 1), device);
  std::vector<const void*> blocks(static_cast<std::size_t>(size));
  blocks[static_cast<std::size_t>(rank)] = bytes_of(slabs.from) + at(rank);
  Phase& phase = state->add_phase(0);
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size;
    const int from = (rank - i + size) % size;
    char* landing = bytes_of(scratch) + own * (i - 1);
    blocks[static_cast<std::size_t>(from)] = landing;
    phase.recv(from, landing, own);
    phase.send(to, bytes_of(slabs.from) + at(to), at(to + 1) - at(to));
  }
  state->keep(scratch);
  state->keep(slabs.from);
  phase.finish = [scratch, blocks, own, item, device, dtype = slabs.from.dtype(), op = slabs.op,
                  out = slabs.out] {
    reduce_blocks({dtype, op, blocks, out, own / item, device});
  };
}

void add_large(const StatePtr& state, const Target& target, ReduceOp op) {
  const Group& group = state->group();
  const int size = group.size();
  const int rank = group.rank();
  const Array& array = target.packed();
  const std::int64_t item = size_of(array.dtype());
  SlabReduction slabs{array, op, std::vector<std::int64_t>(static_cast<std::size_t>(size) + 1), nullptr};
  for (int r = 0; r <= size; ++r) slabs.offsets[static_cast<std::size_t>(r)] = array.numel() / size * r;
  slabs.offsets.back() = array.numel();
  const auto place = [&](int r) {
    return bytes_of(array) + slabs.offsets[static_cast<std::size_t>(r)] * item;
  };
  slabs.out = place(rank);
  add_slab_reduction(state, slabs);
  Phase& phase = state->add_phase(1);
  for (int i = 1; i < size; ++i) {
    const int to = (rank + i) % size;
    const int from = (rank - i + size) % size;
    phase.recv(from, place(from), place(from + 1) - place(from));
    phase.send(to, place(rank), place(rank + 1) - place(rank));
  }
  phase.finish = [target] { target.store(); };
}

// Before any message: afterwards there would be some under way.
void check_ranks(const Call& call, const Group& group, Device device) {
  const int most = most_reduction_blocks(device);
  COMM_CHECK(group.size() <= most, call, "a group of {} ranks was given on device {}, allowed are up to {}",
             group.size(), name_of(device), most);
}

Work start_reduce_scatter(const std::shared_ptr<Group>& group, const Call& call, const SlabReduction& rows,
                          const Array& out) {
  const Target target(out, Target::Load::No);
  auto state = std::make_shared<Work::State>(group, call);
  state->set_device(out.device());
  SlabReduction slabs = rows;
  slabs.from = rows.from.contiguous();
  slabs.out = target.packed().raw();
  const std::int64_t row_items = rows_of(rows.from).bytes / size_of(rows.from.dtype());
  for (std::int64_t& offset : slabs.offsets) offset *= row_items;
  add_slab_reduction(state, slabs);
  state->keep(target.packed());
  state->add_phase(1).finish = [target] { target.store(); };
  state->start();
  return Work(std::move(state));
}

}  // namespace

Work Communicator::all_reduce(const Array& in_place, ReduceOp op, Site site) const {
  const Call call{"all_reduce", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in_place, .reduce = &op});
  check_writable(call, in_place, "the array");
  check_ranks(call, *group_, in_place.device());
  if (!begin_collective(*group_, call, in_place, in_place.nbytes())) return {};
  auto state = std::make_shared<Work::State>(group_, call);
  state->set_device(in_place.device());
  if (size() > 1 && in_place.numel() > 0) {
    const Target target(in_place, Target::Load::Yes);
    if (is_small(size(), in_place.nbytes())) {
      add_small(state, target, op);
    } else {
      add_large(state, target, op);
    }
  }
  state->start();
  return Work(std::move(state));
}

Work Communicator::reduce_scatter(const Array& out, const Array& in, ReduceOp op, Site site) const {
  const Call call{"reduce_scatter", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in, .reduce = &op});
  check_readable(call, in, "in");
  check_writable(call, out, "out");
  check_alike(call, out, in);
  check_ranks(call, *group_, out.device());
  const std::vector<std::int64_t> counts = even_counts(call, *group_, rows_of(in).count);
  COMM_CHECK(rows_of(out).count == counts[0], call, "out has {} rows, but every rank keeps {} of {}",
             rows_of(out).count, counts[0], rows_of(in).count);
  if (!begin_collective(*group_, call, in, in.nbytes())) return {};
  return start_reduce_scatter(group_, call, {in, op, offsets_of(counts), nullptr}, out);
}

Work Communicator::reduce_scatter_v(const Array& out, const Array& in, std::span<const std::int64_t> counts,
                                    ReduceOp op, Site site) const {
  const Call call{"reduce_scatter_v", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {.array = &in, .reduce = &op, .counts = counts});
  check_readable(call, in, "in");
  check_writable(call, out, "out");
  check_alike(call, out, in);
  check_ranks(call, *group_, out.device());
  check_counts(call, *group_, counts, rows_of(in).count);
  const std::int64_t own = counts[static_cast<std::size_t>(rank())];
  COMM_CHECK(rows_of(out).count == own, call, "out has {} rows, but rank {} keeps {}", rows_of(out).count,
             rank(), own);
  if (!begin_collective(*group_, call, in, in.nbytes())) return {};
  return start_reduce_scatter(group_, call, {in, op, offsets_of(counts), nullptr}, out);
}

}  // namespace tessera
