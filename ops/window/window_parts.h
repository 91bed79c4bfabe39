// Windows without a copy of the map together with its halo. Internal to ops/.
//
// What a rank's outputs read is its own map and a few boxes that arrive.
//
// A linear map of all that is the sum of the maps of each: the rank maps its own elements where they lie,
// while the boxes travel, and adds what each box gives to the outputs that read some of it. No product is
// made twice. Backward likewise: the boxes' gradients leave first.
//
// A choice among positions needs all of a window at once. Outputs that read nothing but own elements, the
// inside, are worked out where these lie; those along the edges from small buffers that hold what they read.
#pragma once
#include "mesh/exchange_plan.h"
#include "ops/op.h"
#include "ops/window/sparse_rows.h"

namespace tessera {

// One mapped dim on this rank.
struct AxisPlan {
  int dim = 0;
  double growth = 1;       // outputs per input
  std::int64_t base = 0;   // input position that the buffer begins with
  std::int64_t width = 0;  // positions that the rows may read
  cpu::SparseRows rows;    // own outputs, reading positions of the buffer
};
// From the first to the last position that these outputs read.
Interval positions_read(const cpu::SparseRows& rows, Interval outputs);
// These outputs, reading what position(index) says (negative: not here).
cpu::SparseRows picked_rows(const cpu::SparseRows& rows, Interval outputs,
                            FunctionRef<std::int64_t(std::int64_t)> position);
// For their transpose: rows of positions that read outputs.
void transpose(std::vector<AxisPlan>& axes);
// Those that shrink come first.
void sort_by_growth(std::vector<AxisPlan>& axes);

// A box of the buffer that arrives.
struct ArrivingBox {
  std::int64_t at = 0;  // first element among all that arrives, in the plan's order
  Dims to;              // where it begins in the buffer
  Dims extent;
};
std::vector<ArrivingBox> arriving_boxes(const ExchangePlan& exchange);
// Room for all of them.
Array empty_arrivals(const ExchangePlan& exchange, const Array& like);
// One of them as it lies there, dense in message_order.
Array box_of(const Array& arrivals, const ArrivingBox& box);

// Of a linear map: what a box adds.
struct WindowTerm {
  ArrivingBox box;
  Dims out_from, out_extent;   // outputs that read some of it
  std::vector<AxisPlan> axes;  // these, reading positions of the box
};
struct WindowTerms {
  bool used = false;
  std::vector<AxisPlan> own;  // all outputs, reading the rank's own map
  std::vector<WindowTerm> arriving;
};
// `axes`: reading positions of the buffer that `exchange` fills. Not used where nothing arrives on any rank,
// the rank's own elements do not lie in the buffer in one piece, or many boxes arrive.
WindowTerms window_terms(const ExchangePlan& exchange, const std::vector<AxisPlan>& axes);

// Of a choice: outputs that are worked out together.
struct WindowCopy {
  int box = -1;  // of those that arrive; -1: own elements
  Dims from, to, extent;
};
struct WindowPart {
  Dims out_from, out_extent;
  Dims sizes;  // of what they read:
  std::vector<WindowCopy>
      copies;  // a buffer made of these; none for the inside, which reads the rank's own map
  std::vector<AxisPlan> axes;
  Array outputs(const Array& y) const { return y.box(out_from, out_extent); }
};
struct WindowParts {
  bool used = false;
  std::vector<ArrivingBox> boxes;
  std::vector<WindowPart> parts;  // the inside comes first
};
// Likewise; not used without an inside either.
WindowParts window_parts(const ExchangePlan& exchange, const std::vector<AxisPlan>& axes);

}  // namespace tessera
