// take and put: what every indexing operation is made of, and each other's gradient. Internal to ops/.
//
//   rows      take(x, i)[a…, j…, b…] = x[a…, i[j…], b…]          index_select, embedding
//   elements  take(x, i)[a…, j, b…]  = x[a…, i[a…, j, b…], b…]   gather, sort
//   put(s, i) is the adjoint: zeros of n rows to which s's rows (elements) are added where i says
//
// Sharded. All cuts but that of the indexed dim follow the letters of a rule, and Partial sums stay owed. If
// the indexed dim of x is cut:
//   - an index that is whole on those ranks: every rank takes the rows it holds, the rest is zero, the result
//     Partial: no message. Only if the result is no larger than a rank's part of x; else the result is cut
//     along the index and rows travel.
//   - an index that is cut there: rows travel (see rows.h), each to where its number is.
//   - all of x travels where that is less, which it is only beside moving the index, or of a handful of rows.
// put is cut as `like` is along the indexed dim: ranks that have the terms add those of their own rows, else
// terms travel to their owners. If `like` is not cut there and the index is, the sum stays owed (Partial).
// Which it is follows from specs and sizes alone.
//
// Terms are added in the order of the index, then by rank: bits never vary between runs.
//
// Numbers are checked by whoever sees them. An index that is whole is refused on all ranks before any
// message. Of a cut index a rank sees its part: where rows travel, the group that shares the indexed dim
// refuses together; where nothing travels, the rank refuses alone (a message just for that would cost more
// than the call), and run_program ends the job within seconds with its text. In the mode that checks calls
// all ranks refuse in every case. On a device, where nothing travels, the device itself looks at the numbers
// while it works, takes the wrong ones for nothing, and the refusal comes when the host next waits for it
// (reading a value).
#pragma once
#include "ops/op.h"

namespace tessera {

struct Picking {
  int dim = 0;
  bool elements = false;
  // A number whose row has no gradient (embedding's padding_idx): in gradients it names nothing.
  std::int64_t padding = -1;
  bool skips_padding = false;
  bool checked = false;   // the numbers are known to be right; negative ones name nothing
  bool from_end = false;  // or, with this, count from the end: -n to n - 1 are right
  // Most numbers name rows of the rank that asks, many of them often: rows travel, each once, however much
  // dearer that looks to who cannot see the numbers.
  bool nearby = false;
};
// What put makes: `n` rows, cut along the indexed dim as `like` is (null: not at all).
struct PutTarget {
  std::int64_t n = 0;
  SpecPtr like;
};

// x has at least one dim; the index is I64 or I32, with as many dims as x if `elements`, and then of x's size
// on all dims but `dim`.
Tensor take(const OpDef& op, const Picking& picking, const Tensor& x, const Tensor& index);
Tensor put(const OpDef& op, const Picking& picking, const Tensor& terms, const Tensor& index,
           const PutTarget& target);

// Sizes of take's result.
Dims taken_sizes(const Picking& picking, const Dims& x, const Dims& index);

// Strategies. `extra` is a RowOwners if the indexed dim is cut.
Strategy take_plan(const Picking& picking, const std::vector<SpecPtr>& in);
Strategy put_plan(const Picking& picking, const std::vector<SpecPtr>& in, const Dims& out,
                  const SpecPtr& like);

}  // namespace tessera
