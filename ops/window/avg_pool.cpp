#include "ops/window/pool.h"

#include <algorithm>

#include "ops/elementwise/elementwise.h"
#include "ops/window/pool_args.h"
#include "ops/window/separable.h"
#include "ops/window/window_args.h"

namespace tessera {
namespace {

// `flag`: padding counts; `scale`: of a window of any size where positive.
void window_rows(const AxisMap& a, RowMap& map) {
  const Window& w = a.window;
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const std::int64_t begin = o * w.stride - w.pad_lo;
    const std::int64_t end = std::min(begin + w.kernel, a.inputs + w.pad_hi);
    const Interval inside = intersect({begin, end}, {0, a.inputs});
    const double count = static_cast<double>(a.flag ? end - begin : inside.length());
    for (std::int64_t i = inside.lo; i < inside.hi; ++i) map.rows.add(i, a.scale > 0 ? a.scale : 1 / count);
    map.end_row(std::clamp<std::int64_t>(begin + (w.kernel - 1) / 2, 0, a.inputs - 1));
  }
}

void adaptive_rows(const AxisMap& a, RowMap& map) {
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const std::int64_t begin = o * a.inputs / a.outputs;
    const std::int64_t end = ((o + 1) * a.inputs + a.outputs - 1) / a.outputs;
    for (std::int64_t i = begin; i < end; ++i) map.rows.add(i, 1 / static_cast<double>(end - begin));
    map.end_row((begin + end - 1) / 2);
  }
}

Tensor avg_pool(const char* op, int spatial, const Tensor& x, const Dims& kernel, const AvgPoolOptions& o) {
  static const SeparableOp names{{"avg_pool"}, {"avg_pool_backward"}};
  check_map(op, x, spatial);
  TS_CHECK(!o.divisor_override || *o.divisor_override != 0, op, "divisor_override must not be 0, given {}",
           *o.divisor_override);
  return batched(x, spatial, [&](const Tensor& batch) {
    AxisMaps axes =
        pool_axes({op, spatial, kernel, o.stride, o.padding, {1}, o.ceil_mode}, batch.sizes(), &window_rows);
    for (AxisMap& axis : axes) {
      axis.flag = o.count_include_pad;
      axis.scale = o.divisor_override ? 1 : 0;
    }
    check_outputs(op, batch, axes);
    const Tensor y = apply_separable(names, batch, axes);
    return o.divisor_override ? y / static_cast<double>(*o.divisor_override) : y;
  });
}

Tensor adaptive_avg_pool(const char* op, int spatial, const Tensor& x, const Dims& given) {
  static const SeparableOp names{{"adaptive_avg_pool"}, {"adaptive_avg_pool_backward"}};
  check_map(op, x, spatial);
  Dims outputs = given;
  std::replace(outputs.begin(), outputs.end(), kKeepSize, std::int64_t{0});
  outputs = per_dim(op, "output_size", outputs, spatial, 0);
  const auto kept = [&](int d) { return given[given.size() == 1 ? 0 : d] == kKeepSize; };
  return batched(x, spatial, [&](const Tensor& batch) {
    AxisMaps axes;
    for (int d = 0; d < spatial; ++d) {
      const std::int64_t n = batch.sizes()[d + 2];
      TS_CHECK(n > 0, op, "spatial dims must not be empty, given {}", x.sizes().str());
      if (!kept(d) && outputs[d] != n) axes.push_back({d + 2, n, outputs[d], &adaptive_rows});
    }
    check_outputs(op, batch, axes);
    return apply_separable(names, batch, axes);
  });
}

}  // namespace

Tensor avg_pool1d(const Tensor& x, const Dims& k, const AvgPoolOptions& o) {
  return avg_pool("avg_pool1d", 1, x, k, o);
}
Tensor avg_pool2d(const Tensor& x, const Dims& k, const AvgPoolOptions& o) {
  return avg_pool("avg_pool2d", 2, x, k, o);
}
Tensor avg_pool3d(const Tensor& x, const Dims& k, const AvgPoolOptions& o) {
  return avg_pool("avg_pool3d", 3, x, k, o);
}
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& m) {
  return adaptive_avg_pool("adaptive_avg_pool1d", 1, x, m);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& m) {
  return adaptive_avg_pool("adaptive_avg_pool2d", 2, x, m);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& m) {
  return adaptive_avg_pool("adaptive_avg_pool3d", 3, x, m);
}

}  // namespace tessera
