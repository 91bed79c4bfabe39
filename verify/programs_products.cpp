#include "verify/program_table.h"

namespace tessera::verify {
namespace {

Tensors attention(const Call& c) {
  AttentionOptions o;
  o.attn_mask = c.maybe(3);
  o.is_causal = c.get("is_causal", false);
  if (c.has("scale")) o.scale = c.get<double>("scale");
  o.enable_gqa = c.get("enable_gqa", false);
  return {scaled_dot_product_attention(c.in(0), c.in(1), c.in(2), o)};
}

Tensors convolution(const Call& c,
                    Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&)) {
  ConvOptions o;
  o.stride = c.dims("stride", o.stride);
  if (c.is_text("padding")) {
    o.same = c.get<std::string>("padding") == "same";
    if (!o.same && c.get<std::string>("padding") != "valid") c.lacks("padding of that name");
  } else {
    o.padding = c.dims("padding", o.padding);
  }
  o.dilation = c.dims("dilation", o.dilation);
  o.groups = c.get("groups", o.groups);
  const std::map<std::string, PaddingMode> modes{{"zeros", PaddingMode::Zeros},
                                                 {"circular", PaddingMode::Circular},
                                                 {"reflect", PaddingMode::Reflect},
                                                 {"replicate", PaddingMode::Replicate}};
  o.padding_mode = c.one_of("padding_mode", "zeros", modes);
  return {f(c.in(0), c.in(1), c.maybe(2), o)};
}

Tensors transposed(const Call& c,
                   Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const ConvTransposeOptions&)) {
  ConvTransposeOptions o;
  o.stride = c.dims("stride", o.stride);
  o.padding = c.dims("padding", o.padding);
  o.output_padding = c.dims("output_padding", o.output_padding);
  o.dilation = c.dims("dilation", o.dilation);
  o.groups = c.get("groups", o.groups);
  return {f(c.in(0), c.in(1), c.maybe(2), o)};
}

}  // namespace

void add_products(OpTable& t) {
  t["matmul"] = binary(matmul);
  t["einsum"] = [](const Call& c) -> Tensors { return {einsum(c.get<std::string>("equation"), c.all())}; };
  t["linear"] = [](const Call& c) -> Tensors { return {linear(c.in(0), c.in(1), c.maybe(2))}; };
  t["conv1d"] = [](const Call& c) { return convolution(c, conv1d); };
  t["conv2d"] = [](const Call& c) { return convolution(c, conv2d); };
  t["conv3d"] = [](const Call& c) { return convolution(c, conv3d); };
  t["conv_transpose1d"] = [](const Call& c) { return transposed(c, conv_transpose1d); };
  t["conv_transpose2d"] = [](const Call& c) { return transposed(c, conv_transpose2d); };
  t["conv_transpose3d"] = [](const Call& c) { return transposed(c, conv_transpose3d); };
  t["scaled_dot_product_attention"] = attention;
}

}  // namespace tessera::verify
