// Linear maps that are a product of sparse matrices along chosen dims: y = (A_1 ⊗ … ⊗ A_n) x. Pooling by
// means, interpolation and padding by values of the map itself are these. Internal to ops/.
//
// One exchange brings together what the local outputs read (see window_plan.h), then the matrices are applied
// dim by dim. The adjoint runs the transposes and returns by the adjoint exchange what belongs to others;
// each is the other's gradient, so there are derivatives of every order. Sums that x owes stay owed, and all
// other dims may be cut in any way.
#pragma once
#include "ops/window/axis_map.h"

namespace tessera {

// Names of the two operations; static objects.
struct SeparableOp {
  OpDef forward;
  OpDef adjoint;
};
// Maps of distinct dims. Floating dtypes; bf16 and f16 are computed in float32 until the last dim.
Tensor apply_separable(const SeparableOp& op, const Tensor& x, const AxisMaps& maps);

}  // namespace tessera
