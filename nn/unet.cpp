#include "nn/unet.h"

#include "nn/init.h"
#include "ops/shape/shape_ops.h"
#include "runtime/error.h"

namespace tessera::nn {
namespace {

const UNetOptions& checked(const UNetOptions& o) {
  TS_CHECK(o.spatial_dims >= 1 && o.spatial_dims <= 3, "UNet", "spatial_dims must be 1 to 3, given {}",
           o.spatial_dims);
  TS_CHECK(o.in_channels >= 1 && o.out_channels >= 1, "UNet",
           "in_channels {} and out_channels {} must be at least 1", o.in_channels, o.out_channels);
  TS_CHECK(!o.widths.empty() && o.groups >= 1, "UNet",
           "needs the width of at least one level and at least one group, given {} and {}", o.widths.size(),
           o.groups);
  for (std::int64_t width : o.widths)
    TS_CHECK(width >= 1 && width % o.groups == 0, "UNet", "width {} must be a positive multiple of groups {}",
             width, o.groups);
  return o;
}

ConvLayerOptions conv_options(const UNetOptions& o) {
  ConvLayerOptions c;
  c.kernel_size = {3};
  c.padding = {1};
  c.periodic = o.periodic;
  c.dtype = o.dtype;
  return c;
}

GroupNormOptions norm_options(const UNetOptions& o) {
  return {.dtype = o.dtype, .activation = NormActivation::Silu};
}

ConvLayerOptions point_options(const UNetOptions& o) {
  ConvLayerOptions c;
  c.kernel_size = {1};
  c.dtype = o.dtype;
  return c;
}

}  // namespace

UNetLevel::UNetLevel(std::int64_t in, std::int64_t width, const UNetOptions& o)
    : conv1(o.spatial_dims, in, width, conv_options(o)),
      norm1(o.groups, width, norm_options(o)),
      conv2(o.spatial_dims, width, width, conv_options(o)),
      norm2(o.groups, width, norm_options(o)) {
  register_module("conv1", conv1);
  register_module("norm1", norm1);
  register_module("conv2", conv2);
  register_module("norm2", norm2);
}

Tensor UNetLevel::forward(const Tensor& x) { return norm2(conv2(norm1(conv1(x)))); }

UNet::UNet(const UNetOptions& options)
    : head(checked(options).spatial_dims, options.widths.front(), options.out_channels,
           point_options(options)),
      options_(options) {
  const std::vector<std::int64_t>& w = options.widths;
  const int n = options.spatial_dims;
  down.add(options.in_channels, w[0], options);
  for (std::size_t i = 0; i + 1 < w.size(); ++i) {
    shrink.add(n, w[i], w[i + 1],
               ConvLayerOptions{.kernel_size = {2}, .stride = {2}, .dtype = options.dtype});
    down.add(w[i + 1], w[i + 1], options);
    widen.add(n, w[i + 1], w[i],
              ConvTransposeLayerOptions{.kernel_size = {2}, .stride = {2}, .dtype = options.dtype});
    up.add(2 * w[i], w[i], options);
  }
  register_module("down", down);
  register_module("shrink", shrink);
  register_module("widen", widen);
  register_module("up", up);
  register_module("head", head);
  initialize(options.seed);
}

void UNet::reset_parameters(Generator&) {
  if (!options_.zero_head) return;
  init::zeros(head.weight);
  init::zeros(head.bias);
}

void UNet::check_input(const Tensor& x) const {
  const int n = options_.spatial_dims;
  TS_CHECK(x.defined() && x.dim() == n + 2 && x.size(1) == options_.in_channels, "UNet",
           "this model takes [N, {}, {} spatial dims], given {}", options_.in_channels, n,
           x.defined() ? x.sizes().str() : "nothing");
  const std::int64_t unit = std::int64_t{1} << shrink.size();
  for (int d = 2; d < x.dim(); ++d)
    TS_CHECK(x.size(d) % unit == 0, "UNet",
             "{} levels need spatial sizes that are multiples of {}, given {}; pad to {} and cut back",
             options_.widths.size(), unit, x.sizes().str(), (x.size(d) + unit - 1) / unit * unit);
}

Tensor UNet::forward(const Tensor& x) {
  check_input(x);
  Tensors passed;  // what each level gives on the way down
  Tensor h = down[0](x);
  for (std::size_t i = 0; i < shrink.size(); ++i) {
    passed.push_back(h);
    h = down[i + 1](shrink[i](h));
  }
  for (std::size_t i = shrink.size(); i-- > 0;) h = up[i](cat({passed[i], widen[i](h)}, 1));
  return head(h);
}

}  // namespace tessera::nn
