// Helpers of shape operations that follow elements through cuts; internal to ops/.
#pragma once
#include "mesh/exchange_plan.h"
#include "ops/op.h"

namespace tessera {

// A spec with the cut of one dim (and the size of that dim) replaced. `cut` empty: that dim becomes whole.
SpecPtr with_cut(const ShardSpec& spec, int dim, std::int64_t size, const std::optional<DimCut>& cut);
// `spec` with its dim `dim` cut as dim `from` of `like` is (of the same size), where dim and axes are free:
// what is whole is taken apart to go with what is not.
SpecPtr cut_along(const SpecPtr& spec, int dim, const ShardSpec& like, int from);
// `spec`, whole on `axes`, with them cutting `dim` evenly, each part of a cut that it has
// already for itself.
SpecPtr cut_further(const ShardSpec& spec, int dim, const std::vector<int>& axes);

// The default partition of n positions over the same axes, in the same nesting order.
DimCut even_cut(const DimCut& like, std::int64_t n);

// A run of local rows: [from, from + count·step) of the source is [to, to + count) of the result.
struct LocalRun {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t count = 0;
};

// A linear map of boxes (periodic padding, rolling): for every rank the segments that the result's buffer
// takes from the input, dim by dim.
struct BoxMap {
  ExchangePlan plan;
  Communicator comm;  // undefined: plain
};
// `to_dim(rank, dim)`: segments and local length of one dim of the result on a rank.
using DimSegments = std::pair<std::vector<Segment>, std::int64_t>;
// What the rank holds of a dim, as it lies.
DimSegments own_segments(const ShardSpec& spec, int rank, int dim);
BoxMap plan_box_map(const ShardSpec* from, const Dims& from_sizes,
                    FunctionRef<DimSegments(int rank, int dim)> to_dim);

}  // namespace tessera
