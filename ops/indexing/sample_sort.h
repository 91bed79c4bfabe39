// Sorting rows whose dim is cut, by regular sampling. Internal to ops/.
//
// Every rank sorts what it has and shows a few of its items, evenly spaced. From all samples all ranks choose
// the same items to cut the rows at, so that each rank gets about as many items as it held; items travel to
// their rank, which sorts them. Counts are known to all by then, so the few items on the wrong side of a
// border go where the exact cut wants them: position p of the sorted row lives where position p of x lived.
// The order is strict (equal values by number), so neither duplicates nor cuts change anything.
#pragma once
#include "mesh/spec.h"

namespace tessera {

// Values of rows with their numbers along the dim (I64).
struct Ranked {
  Array values;
  Array numbers;
};

// The first k of each row of x [rows, n] with their positions, and items of several rows, one after another,
// in order (see ops/cpu/order.h).
Ranked order_rows(const Array& x, std::int64_t k, bool descending);
Ranked order_items(const Ranked& items, const Array& ends, bool descending);

// One dim of a tensor as the ranks that share it hold it.
class CutDim {
 public:
  CutDim(const ShardSpec& spec, int dim);
  const Communicator& comm() const { return comm_; }
  int members() const { return static_cast<int>(held_.size()); }
  const Intervals& held(int member) const { return held_[static_cast<std::size_t>(member)]; }
  const Intervals& own() const { return held(comm_.rank()); }
  std::int64_t length(int member) const;
  std::int64_t size() const { return size_; }
  // x [rows, n] as this rank holds it, columns in the order of the whole dim, and the number of each column.
  Ranked ascending(const Array& x) const;

 private:
  Communicator comm_;
  std::vector<Intervals> held_;
  std::int64_t size_ = 0;
};

// Collective over the dim's ranks. x [rows, n] of this rank -> the sorted row at the positions it holds.
Ranked sample_sort(const CutDim& dim, const Array& x, bool descending);
// The first k of each row of the whole, on every rank: [rows, k].
Ranked merged_topk(const CutDim& dim, const Array& x, std::int64_t k, bool descending);

}  // namespace tessera
