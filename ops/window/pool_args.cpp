#include "ops/window/pool_args.h"

#include "ops/window/window_args.h"

namespace tessera {
namespace {

// PyTorch's: rounded up in ceil_mode, but no window may begin in the padding at the end.
std::int64_t pooled_size(const Window& w, std::int64_t n, bool ceil_mode) {
  const std::int64_t room = n + w.pad_lo + w.pad_hi - w.reach();
  if (room < 0) return ceil_mode && room > -w.stride ? 1 : 0;
  const std::int64_t outputs = room / w.stride + (ceil_mode && room % w.stride != 0 ? 2 : 1);
  const bool begins_outside = ceil_mode && (outputs - 1) * w.stride >= n + w.pad_lo;
  return begins_outside ? outputs - 1 : outputs;
}

}  // namespace

void check_map_dims(const char* op, const Tensor& x, int spatial) {
  TS_CHECK(x.defined(), op, "the input is undefined");
  TS_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2, op,
           "needs an input [N, C, {} spatial dims] or [C, …], given {}", spatial, x.sizes().str());
}

void check_map(const char* op, const Tensor& x, int spatial) {
  check_map_dims(op, x, spatial);
  TS_CHECK(is_floating(x.dtype()), op, "needs a floating tensor, given {}", name_of(x.dtype()));
}

AxisMaps pool_axes(const PoolArgs& a, const Dims& x, AxisMap::RowFunction rows) {
  const Dims kernel = per_dim(a.op, "kernel_size", a.kernel, a.spatial, 1);
  const Dims stride = a.stride.empty() ? kernel : per_dim(a.op, "stride", a.stride, a.spatial, 1);
  const Dims padding = per_dim(a.op, "padding", a.padding, a.spatial, 0);
  const Dims dilation = per_dim(a.op, "dilation", a.dilation, a.spatial, 1);
  for (int d = 1; d < x.size(); ++d)
    TS_CHECK(x[d] > 0, a.op, "no dim but the batch may be empty, given {}", x.str());
  AxisMaps axes;
  axes.reserve(static_cast<std::size_t>(a.spatial));
  for (int d = 0; d < a.spatial; ++d) {
    TS_CHECK(padding[d] <= kernel[d] / 2, a.op, "padding {} is more than half of kernel_size {}",
             padding.str(), kernel.str());
    AxisMap axis;
    axis.dim = d + 2;
    axis.inputs = x[d + 2];
    axis.window = {kernel[d], stride[d], padding[d], padding[d], dilation[d]};
    checked_reach(a.op, axis.window);
    checked_padded(a.op, axis.inputs, axis.window);
    axis.outputs = pooled_size(axis.window, axis.inputs, a.ceil_mode);
    axis.rows = rows;
    TS_CHECK(axis.outputs >= 1, a.op,
             "a window reaches over {} positions of spatial dim {}, the padded input has {}",
             axis.window.reach(), d, axis.inputs + 2 * padding[d]);
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace tessera
