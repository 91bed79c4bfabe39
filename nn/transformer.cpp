#include "nn/transformer.h"

#include <cmath>

#include "ops/shape/shape_ops.h"
#include "runtime/error.h"

namespace tessera::nn {
namespace {

LinearOptions linear_options(const TransformerOptions& o, Activation activation = Activation::None) {
  return {o.bias, o.dtype, o.generator, activation};
}
LayerNormOptions norm_options(const TransformerOptions& o) { return {o.eps, true, o.dtype}; }

std::int64_t hidden_width(const TransformerOptions& o) {
  constexpr double kMost = 1 << 30;
  const double hidden = o.mlp_ratio * static_cast<double>(o.width);
  TS_CHECK(hidden >= 0.5 && hidden <= kMost, "MLP",
           "mlp_ratio {} of width {} must give 1 to {} hidden features", o.mlp_ratio, o.width, kMost);
  return std::llround(hidden);
}

const TransformerOptions& checked(const TransformerOptions& o) {
  TS_CHECK(o.width >= 1 && o.heads >= 1 && o.width % o.heads == 0, "MultiheadAttention",
           "width {} must be a positive multiple of heads {}", o.width, o.heads);
  TS_CHECK(o.attention_dropout >= 0.0 && o.attention_dropout <= 1.0, "MultiheadAttention",
           "attention_dropout is {}, 0 <= attention_dropout <= 1 is allowed", o.attention_dropout);
  TS_CHECK(o.attention_dropout == 0.0 || o.dropout_generator != nullptr, "MultiheadAttention",
           "attention_dropout = {} needs a generator, shared by all dropouts of the model",
           o.attention_dropout);
  return o;
}

}  // namespace

MultiheadAttention::MultiheadAttention(const TransformerOptions& options)
    : qkv(checked(options).width, 3 * options.width, linear_options(options)),
      proj(options.width, options.width, linear_options(options)),
      dropout(options.dropout, options.dropout_generator),
      heads_(options.heads),
      attention_{.is_causal = options.is_causal,
                 .dropout_p = options.attention_dropout,
                 .generator = options.dropout_generator} {
  register_module("qkv", qkv);
  register_module("proj", proj);
  register_module("dropout", dropout);
}

Tensor MultiheadAttention::forward(const Tensor& x) {
  TS_CHECK(x.dim() == 3, "MultiheadAttention", "x must be [N, T, width], given {}", x.sizes().str());
  const std::int64_t n = x.size(0);
  const std::int64_t t = x.size(1);
  const std::int64_t width = proj.weight.size(0);
  // Views all the way: q, k and v stay where the linear layer wrote them, and their gradients come back
  // together in its layout by one concatenation.
  const Tensors parts = split(qkv(x), {width, width, width}, -1);
  Tensor heads[3];
  for (std::size_t i = 0; i < 3; ++i)
    heads[i] = transpose(reshape(parts[i], {n, t, heads_, width / heads_}), 1, 2);
  AttentionOptions options = attention_;
  if (!training()) options.dropout_p = 0.0;
  const Tensor mixed = scaled_dot_product_attention(heads[0], heads[1], heads[2], options);
  return dropout(proj(reshape(transpose(mixed, 1, 2), {n, t, width})));
}

Mlp::Mlp(const TransformerOptions& options)
    : fc1(options.width, hidden_width(options), linear_options(options, Activation::Gelu)),
      fc2(hidden_width(options), options.width, linear_options(options)),
      dropout(options.dropout, options.dropout_generator) {
  register_module("fc1", fc1);
  register_module("fc2", fc2);
  register_module("dropout", dropout);
}

Tensor Mlp::forward(const Tensor& x) { return dropout(fc2(dropout(fc1(x)))); }

Tensor ResidualSum::value() const { return branch.defined() ? x + branch : x; }

AddLayerNorm ResidualSum::normed(LayerNorm& norm) const {
  return branch.defined() ? norm.forward_add(branch, x) : AddLayerNorm{x, norm(x)};
}

TransformerBlock::TransformerBlock(const TransformerOptions& options)
    : norm1({options.width}, norm_options(options)),
      attn(options),
      norm2({options.width}, norm_options(options)),
      mlp(options) {
  register_module("norm1", norm1);
  register_module("attn", attn);
  register_module("norm2", norm2);
  register_module("mlp", mlp);
}

ResidualSum TransformerBlock::forward_residual(ResidualSum given) {
  const auto [x, normal] = given.normed(norm1);
  given = {};  // the branch is not needed any more
  const auto [y, middle] = norm2.forward_add(attn(normal), x);
  return {y, mlp(middle)};
}

}  // namespace tessera::nn
