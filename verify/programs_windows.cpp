#include "verify/program_table.h"

namespace tessera::verify {
namespace {

using AveragePool = Tensor (*)(const Tensor&, const Dims&, const AvgPoolOptions&);
using AdaptivePool = Tensor (*)(const Tensor&, const Dims&);

OpFunction averages(AveragePool f) {
  return [f](const Call& c) -> Tensors {
    AvgPoolOptions o;
    o.stride = c.dims("stride", o.stride);
    o.padding = c.dims("padding", o.padding);
    o.ceil_mode = c.get("ceil_mode", o.ceil_mode);
    o.count_include_pad = c.get("count_include_pad", o.count_include_pad);
    if (c.has("divisor_override")) o.divisor_override = c.integer("divisor_override");
    return {f(c.in(0), c.dims("kernel_size"), o)};
  };
}

OpFunction adaptive(AdaptivePool f) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.dims_or_null("output_size", kKeepSize))}; };
}

MaxPoolOptions max_options(const Call& c) {
  MaxPoolOptions o;
  o.stride = c.dims("stride", o.stride);
  o.padding = c.dims("padding", o.padding);
  o.dilation = c.dims("dilation", o.dilation);
  o.ceil_mode = c.get("ceil_mode", o.ceil_mode);
  return o;
}

using LargestPool = Tensor (*)(const Tensor&, const Dims&, const MaxPoolOptions&);
using FoundPool = MaxPoolResult (*)(const Tensor&, const Dims&, const MaxPoolOptions&);

OpFunction largest(LargestPool values, FoundPool both) {
  return [values, both](const Call& c) -> Tensors {
    if (!c.get("return_indices", false)) return {values(c.in(0), c.dims("kernel_size"), max_options(c))};
    const MaxPoolResult r = both(c.in(0), c.dims("kernel_size"), max_options(c));
    return {r.values, r.indices};
  };
}

Tensors interpolated(const Call& c) {
  const std::map<std::string, InterpolateMode> modes{{"nearest", InterpolateMode::Nearest},
                                                     {"nearest-exact", InterpolateMode::NearestExact},
                                                     {"linear", InterpolateMode::Linear},
                                                     {"bilinear", InterpolateMode::Bilinear},
                                                     {"trilinear", InterpolateMode::Trilinear},
                                                     {"bicubic", InterpolateMode::Bicubic},
                                                     {"area", InterpolateMode::Area}};
  InterpolateOptions o;
  o.size = c.dims("size", o.size);
  o.scale_factor = c.get("scale_factor", o.scale_factor);
  o.mode = c.one_of("mode", "nearest", modes);
  if (c.has("align_corners")) o.align_corners = c.get<bool>("align_corners");
  o.recompute_scale_factor = c.get("recompute_scale_factor", false);
  return {interpolate(c.in(0), o)};
}

}  // namespace

void add_windows(OpTable& t) {
  t["avg_pool1d"] = averages(&avg_pool1d);
  t["avg_pool2d"] = averages(&avg_pool2d);
  t["avg_pool3d"] = averages(&avg_pool3d);
  t["adaptive_avg_pool1d"] = adaptive(&adaptive_avg_pool1d);
  t["adaptive_avg_pool2d"] = adaptive(&adaptive_avg_pool2d);
  t["adaptive_avg_pool3d"] = adaptive(&adaptive_avg_pool3d);
  t["max_pool1d"] = largest(&max_pool1d, &max_pool1d_with_indices);
  t["max_pool2d"] = largest(&max_pool2d, &max_pool2d_with_indices);
  t["max_pool3d"] = largest(&max_pool3d, &max_pool3d_with_indices);
  t["interpolate"] = interpolated;
}

}  // namespace tessera::verify
