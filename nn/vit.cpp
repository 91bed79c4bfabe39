#include "nn/vit.h"

#include "nn/init.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/error.h"

namespace tessera::nn {
namespace {

constexpr double kDeviation = 0.02;
// Dropout draws from streams that no initial value uses.
constexpr std::uint64_t kDropoutStream = std::uint64_t{1} << 32U;

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

const ViTOptions& checked(const ViTOptions& o) {
  TS_CHECK(o.image.size() == 2 && o.patch.size() == 2 && o.image[0] >= 1 && o.image[1] >= 1 &&
               o.patch[0] >= 1 && o.patch[1] >= 1,
           "ViT", "image and patch must be {{height, width}}, both positive, given {} and {}", o.image.str(),
           o.patch.str());
  TS_CHECK(o.image[0] % o.patch[0] == 0 && o.image[1] % o.patch[1] == 0, "ViT",
           "patches of {}x{} do not divide an image of {}x{}; pad the image to {}x{}, for example",
           o.patch[0], o.patch[1], o.image[0], o.image[1], round_up(o.image[0], o.patch[0]),
           round_up(o.image[1], o.patch[1]));
  TS_CHECK((o.out_channels > 0) != (o.classes > 0) && o.out_channels >= 0 && o.classes >= 0, "ViT",
           "give either out_channels (a map) or classes, given {} and {}", o.out_channels, o.classes);
  TS_CHECK(o.channels >= 1 && o.depth >= 0 && o.mlp_ratio > 0, "ViT",
           "channels {}, depth {} and mlp_ratio {} must be at least 1, at least 0 and positive", o.channels,
           o.depth, o.mlp_ratio);
  TS_CHECK(o.width >= 1 && o.heads >= 1 && o.width % o.heads == 0, "ViT",
           "width {} must be a positive multiple of heads {}", o.width, o.heads);
  return o;
}

std::int64_t tokens_of(const ViTOptions& o) { return (o.image[0] / o.patch[0]) * (o.image[1] / o.patch[1]); }
std::int64_t head_size(const ViTOptions& o) {
  return o.classes > 0 ? o.classes : o.patch[0] * o.patch[1] * o.out_channels;
}

ConvLayerOptions embed_options(const ViTOptions& o) {
  ConvLayerOptions c;
  c.kernel_size = o.patch;
  c.stride = o.patch;
  c.dtype = o.dtype;
  return c;
}

}  // namespace

ViT::ViT(const ViTOptions& options)
    : embed(checked(options).channels, options.width, embed_options(options)),
      pos_embed(
          register_parameter("pos_embed", zeros({1, tokens_of(options), options.width}, options.dtype))),
      norm({options.width}, {.dtype = options.dtype}),
      head(options.width, head_size(options), {.dtype = options.dtype}),
      options_(options),
      dropout_generator_(std::make_shared<Generator>(options.seed)) {
  dropout_generator_->set_stream(kDropoutStream);
  for (std::int64_t i = 0; i < options.depth; ++i)
    blocks.add(TransformerOptions{.width = options.width,
                                  .heads = options.heads,
                                  .mlp_ratio = options.mlp_ratio,
                                  .dropout = options.dropout,
                                  .attention_dropout = options.attention_dropout,
                                  .dtype = options.dtype,
                                  .dropout_generator = dropout_generator_});
  register_module("embed", embed);
  register_module("blocks", blocks);
  register_module("norm", norm);
  register_module("head", head);
  initialize(options.seed);
}

void ViT::reset_parameters(Generator& generator) {
  if (options_.init == ViTInit::TruncatedNormal) {
    apply([&](Module& m) {
      auto* layer = dynamic_cast<Linear*>(&m);
      if (layer == nullptr) return;
      trunc_normal_(layer->weight, 0.0, kDeviation, generator);
      if (layer->bias.defined()) init::zeros(layer->bias);
    });
    trunc_normal_(pos_embed, 0.0, kDeviation, generator);
  } else {
    normal_(pos_embed, 0.0, kDeviation, generator);
  }
  if (options_.zero_head) {
    init::zeros(head.weight);
    init::zeros(head.bias);
  }
}

void ViT::check_input(const Tensor& x) const {
  TS_CHECK(x.dim() == 4 && x.size(1) == options_.channels && x.size(2) == options_.image[0] &&
               x.size(3) == options_.image[1],
           "ViT", "x has sizes {}, this model takes [N, {}, {}, {}]", x.sizes().str(), options_.channels,
           options_.image[0], options_.image[1]);
}

Tensor ViT::forward(const Tensor& x) {
  check_input(x);
  ResidualSum stream{.x = transpose(flatten(embed(x), 2), 1, 2) + pos_embed};
  for (std::size_t i = 0; i < blocks.size(); ++i) stream = blocks[i].forward_residual(std::move(stream));
  const Tensor tokens = stream.normed(norm).norm;
  stream = {};
  return options_.classes > 0 ? head(mean(tokens, {1})) : to_map(head(tokens));
}

// Splitting the tokens back into rows and columns of patches and merging these with the cells of a patch
// keeps every cut where it is.
Tensor ViT::to_map(const Tensor& tokens) const {
  const std::int64_t n = tokens.size(0);
  const std::int64_t c = options_.out_channels;
  const std::int64_t ph = options_.patch[0];
  const std::int64_t pw = options_.patch[1];
  const std::int64_t gh = options_.image[0] / ph;
  const std::int64_t gw = options_.image[1] / pw;
  const Tensor cells = permute(reshape(tokens, {n, gh, gw, ph, pw, c}), {0, 5, 1, 3, 2, 4});
  return reshape(cells, {n, c, gh * ph, gw * pw});
}

}  // namespace tessera::nn
