#include "ops/window/interpolate.h"

#include <cmath>

#include "ops/window/pool.h"
#include "ops/window/pool_args.h"
#include "ops/window/separable.h"
#include "ops/window/window_args.h"

namespace tessera {
namespace {

// In all of these, `scale` is inputs per output, `flag` is align_corners.

std::int64_t inside(const AxisMap& a, std::int64_t i) { return std::clamp<std::int64_t>(i, 0, a.inputs - 1); }

// In float32, as PyTorch: a position that falls on the border between two inputs is decided by its rounding.
template <int kHalves>
void nearest_rows(const AxisMap& a, RowMap& map) {
  const auto scale = static_cast<float>(a.scale);
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const float at = (static_cast<float>(o) + 0.5F * kHalves) * scale;
    const std::int64_t i = std::min(static_cast<std::int64_t>(std::floor(at)), a.inputs - 1);
    map.rows.add(i, 1);
    map.end_row(i);
  }
}

double position(const AxisMap& a, std::int64_t o) {
  const auto at = static_cast<double>(o);
  return a.flag ? a.scale * at : a.scale * (at + 0.5) - 0.5;
}

std::int64_t nearest_to(const AxisMap& a, double at) {
  return inside(a, static_cast<std::int64_t>(std::floor(at + 0.5)));
}

void linear_rows(const AxisMap& a, RowMap& map) {
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const bool same = a.inputs == a.outputs;
    const double at = same ? static_cast<double>(o) : std::max(0.0, position(a, o));
    const std::int64_t i = std::min(static_cast<std::int64_t>(at), a.inputs - 1);
    const double t = std::clamp(at - static_cast<double>(i), 0.0, 1.0);
    map.rows.add(i, 1 - t);
    map.rows.add(same ? i : inside(a, i + 1), t);
    map.end_row(nearest_to(a, at));
  }
}

void cubic_rows(const AxisMap& a, RowMap& map) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const double at = position(a, o);
    const std::int64_t i = std::min(static_cast<std::int64_t>(std::floor(at)), a.inputs - 1);
    const double t = std::clamp(at - static_cast<double>(i), 0.0, 1.0);
    map.rows.add(inside(a, i - 1), far(t + 1));
    map.rows.add(inside(a, i), near(t));
    map.rows.add(inside(a, i + 1), near(1 - t));
    map.rows.add(inside(a, i + 2), far(2 - t));
    map.end_row(nearest_to(a, at));
  }
}

struct Mode {
  const char* name;
  int spatial;  // 0: any
  AxisMap::RowFunction rows;
};
Mode mode_of(InterpolateMode mode) {
  switch (mode) {
    case InterpolateMode::Nearest:
      return {"nearest", 0, &nearest_rows<0>};
    case InterpolateMode::NearestExact:
      return {"nearest-exact", 0, &nearest_rows<1>};
    case InterpolateMode::Linear:
      return {"linear", 1, &linear_rows};
    case InterpolateMode::Bilinear:
      return {"bilinear", 2, &linear_rows};
    case InterpolateMode::Trilinear:
      return {"trilinear", 3, &linear_rows};
    case InterpolateMode::Bicubic:
      return {"bicubic", 2, &cubic_rows};
    case InterpolateMode::Area:
      return {"area", 0, nullptr};
  }
  TS_FAIL(Usage, "interpolate", "unknown mode");
}

void check(const Tensor& x, const InterpolateOptions& o, const Mode& mode) {
  TS_CHECK(x.defined(), "interpolate", "the input is undefined");
  const int n = x.dim() - 2;
  TS_CHECK(n >= 1 && n <= 3 && (mode.spatial == 0 || mode.spatial == n), "interpolate",
           "mode {} needs an input [N, C, {} spatial dims], given {}", mode.name,
           mode.spatial == 0 ? "1 to 3" : std::to_string(mode.spatial), x.sizes().str());
  check_map("interpolate", x, n);
  TS_CHECK(o.size.empty() != o.scale_factor.empty(), "interpolate",
           "exactly one of size and scale_factor must be given");
  const bool aligns = o.mode != InterpolateMode::Nearest && o.mode != InterpolateMode::NearestExact &&
                      o.mode != InterpolateMode::Area;
  TS_CHECK(!o.align_corners || aligns, "interpolate", "mode {} has no align_corners", mode.name);
  TS_CHECK(!o.recompute_scale_factor || o.size.empty(), "interpolate",
           "recompute_scale_factor needs a scale_factor");
  const auto factors = static_cast<int>(o.scale_factor.size());
  TS_CHECK(o.scale_factor.empty() || factors == 1 || factors == n, "interpolate",
           "scale_factor needs one value or {} (one per spatial dim), given {}", n, factors);
  for (int d = 1; d < x.dim(); ++d)
    TS_CHECK(x.size(d) > 0, "interpolate", "no dim but the batch may be empty, given {}", x.sizes().str());
}

// PyTorch's nearest of images counts positions from the sizes, not from a factor, where these are the same or
// twice as large.
bool as_by_size(const Tensor& x, const InterpolateOptions& o, const AxisMap& axis) {
  return o.mode == InterpolateMode::Nearest && x.dim() == 4 &&
         (axis.outputs == axis.inputs || axis.outputs == 2 * axis.inputs);
}

// One spatial dim; the rows are those of the mode.
AxisMap axis_of(const Tensor& x, const InterpolateOptions& o, int d) {
  AxisMap axis;
  axis.dim = d + 2;
  axis.inputs = x.size(d + 2);
  axis.flag = o.align_corners.value_or(false);
  double factor = 0;
  if (o.size.empty()) {
    factor = o.scale_factor[o.scale_factor.size() == 1 ? 0 : static_cast<std::size_t>(d)];
    const double outputs = std::floor(static_cast<double>(axis.inputs) * factor);
    TS_CHECK(outputs >= 1 && outputs <= static_cast<double>(kMostOutputs), "interpolate",
             "spatial dim {} of size {} would have {} positions by scale_factor {}, 1 to {} are allowed", d,
             axis.inputs, outputs, factor, kMostOutputs);
    axis.outputs = static_cast<std::int64_t>(outputs);
  } else {
    axis.outputs = per_dim("interpolate", "size", o.size, x.dim() - 2, 1)[d];
  }
  if (axis.flag) {
    axis.scale =
        axis.outputs > 1 ? static_cast<double>(axis.inputs - 1) / static_cast<double>(axis.outputs - 1) : 0;
  } else if (factor > 0 && !o.recompute_scale_factor && !as_by_size(x, o, axis)) {
    axis.scale = 1 / factor;
  } else {
    axis.scale = static_cast<double>(axis.inputs) / static_cast<double>(axis.outputs);
  }
  return axis;
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  static const SeparableOp names{{"interpolate"}, {"interpolate_backward"}};
  const Mode mode = mode_of(o.mode);
  check(x, o, mode);
  const int n = x.dim() - 2;
  AxisMaps axes;
  Dims outputs;
  for (int d = 0; d < n; ++d) {
    AxisMap axis = axis_of(x, o, d);
    axis.rows = mode.rows;
    outputs.push_back(axis.outputs);
    // Picking every position once leaves a dim as it is (a weight of 0 beside an infinity would not).
    const bool picks = mode.rows == &nearest_rows<0> || mode.rows == &nearest_rows<1>;
    if (!picks || axis.inputs != axis.outputs || axis.scale != 1) axes.push_back(axis);
  }
  check_outputs("interpolate", x, axes);
  if (o.mode != InterpolateMode::Area) return apply_separable(names, x, axes);
  return n == 1   ? adaptive_avg_pool1d(x, outputs)
         : n == 2 ? adaptive_avg_pool2d(x, outputs)
                  : adaptive_avg_pool3d(x, outputs);
}

}  // namespace tessera
