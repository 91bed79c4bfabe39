// How an operation whose outputs read windows of the input is split. Internal to ops/.
//
// Along a cut dim every rank fetches what the windows of its outputs reach beyond its own part, in one
// exchange for all dims, corners included; an output lives where its home lies. Where the windows are so wide
// that this would move more than the outputs themselves (the mean of a whole map), a linear map leaves the
// dim's sums owed instead: every rank adds up its own part and nothing moves.
#pragma once
#include "ops/window/axis_map.h"
#include "ops/window/window_buffer.h"
#include "ops/window/window_parts.h"

namespace tessera {

// What the local rows hold: the map itself, its transpose (of outputs onto the buffer), or nothing but
// positions to choose among.
enum class WindowUse : std::uint8_t { Linear, Transposed, Select };

struct WindowPlan {
  SpecPtr x, y;  // null: plain
  WindowBuffer buffer;
  std::vector<AxisPlan> axes;  // those that shrink come first
  // How to do without the buffer: linear maps, and choices.
  WindowTerms terms;
  WindowParts parts;
  unsigned summed = 0;  // mesh axes whose sums y owes
};

// `x` null: plain. Partial axes of x stay if they are sums or the use is Select.
WindowPlan plan_windows(const SpecPtr& x, const AxisMaps& maps, WindowUse use);
// The plan of a call: its strategy's, or that of plain tensors, which every thread keeps for some shapes. A
// graph that is being captured keeps it as well.
std::shared_ptr<const WindowPlan> plan_of(const LocalCall& call, const AxisMaps& maps, WindowUse use);

// A choice, part by part: the outputs of a part from what they read. Halves go through the buffer, because
// their sums are rounded once.
bool in_parts(const WindowPlan& plan, const Array& x);
bool in_parts(const WindowPlan& plan, const Array& y, const Dims& x_sizes);
void each_part(const WindowPlan& plan, const Array& x,
               FunctionRef<void(const WindowPart& part, const Array& read)> run);
// The adjoint: `run` writes what a part's outputs give to each position of what they read, all of it; what
// comes out lies in `order`. Edges first, so that what goes to others is on its way while the inside is
// worked out.
Array sum_of_parts(const WindowPlan& plan, const Dims& order, const Array& y,
                   FunctionRef<void(const WindowPart& part, const Array& read)> run);

}  // namespace tessera
