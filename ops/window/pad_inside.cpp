#include "ops/window/pad_inside.h"

#include "ops/indexing/indexing.h"
#include "ops/window/pool_args.h"
#include "ops/window/separable.h"

namespace tessera {
namespace {

// Outputs that lie in the padding belong to whoever holds the end that they are added to.
template <bool kReflect>
void padded_rows(const AxisMap& a, RowMap& map) {
  const std::int64_t last = a.inputs - 1;
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const std::int64_t at = o - a.window.pad_lo;
    const std::int64_t nearest = std::clamp<std::int64_t>(at, 0, last);
    map.rows.add(kReflect ? 2 * nearest - at : nearest, 1);
    map.end_row(nearest);
  }
}

// Of integers, which have no gradient: the rows by their numbers, from whoever has them.
Tensor padded_integers(const Tensor& x, const AxisMaps& axes) {
  Tensor y = x;
  for (const AxisMap& a : axes) {
    const Array rows = Array::empty({a.outputs}, DType::I64);
    const RowMap map = a.make(false);  // of one term each
    std::copy(map.rows.index.begin(), map.rows.index.end(), rows.data<std::int64_t>());
    y = index_select(y, a.dim, Tensor(rows.to(x.device())));
  }
  return y;
}

}  // namespace

Tensor pad_from_inside(const Tensor& x, int spatial, const Dims& before, const Dims& after, PadMode mode) {
  static const SeparableOp reflect_op{{"pad_reflect"}, {"pad_reflect_backward"}};
  static const SeparableOp replicate_op{{"pad_replicate"}, {"pad_replicate_backward"}};
  const bool reflect = mode == PadMode::Reflect;
  const char* op = "pad";  // what was called
  TS_CHECK(spatial >= 1 && spatial <= 3, op, "1 to 3 dims can be padded so, given {}", spatial);
  check_map_dims(op, x, spatial);
  TS_CHECK(x.dtype() != DType::Bool, op, "needs a tensor of numbers, given {}", name_of(x.dtype()));
  AxisMaps axes;
  for (int d = 0; d < x.dim(); ++d) {
    const std::int64_t n = x.sizes()[d];
    const bool batch = d == 0 && x.dim() == spatial + 2;
    TS_CHECK(batch || n > 0, op, "no dim but the batch may be empty, given {}", x.sizes().str());
    TS_CHECK(
        !reflect || (before[d] < n && after[d] < n) || batch, op,
        "dim {} of size {} cannot be padded by {} and {}: reflected padding must be smaller than the dim", d,
        n, before[d], after[d]);
    if (before[d] == 0 && after[d] == 0) continue;
    TS_CHECK(n + before[d] + after[d] >= 1, op, "dim {} of size {} cannot be padded by {} and {}", d, n,
             before[d], after[d]);
    AxisMap axis{d, n, n + before[d] + after[d], reflect ? &padded_rows<true> : &padded_rows<false>};
    axis.window.pad_lo = before[d];
    axes.push_back(axis);
  }
  check_outputs(op, x, axes);
  if (!is_floating(x.dtype())) return padded_integers(x, axes);
  return apply_separable(reflect ? reflect_op : replicate_op, x, axes);
}

}  // namespace tessera
