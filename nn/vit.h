// ViT: a vision transformer (Dosovitskiy et al. 2021) for maps and for classes.
//
//   nn::ViT model({.channels = 10, .image = {76, 144}, .patch = {4, 4}, .width = 96, .depth = 4, .heads = 4,
//                  .out_channels = 2});
//
// An image may be cut along its height, its width or both, in uneven and empty parts: patches follow the
// cells, and tokens stay where their patch is from the embedding to the last layer.
#pragma once
#include "nn/container.h"
#include "nn/conv.h"
#include "nn/transformer.h"

namespace tessera::nn {

enum class ViTInit : std::uint8_t {
  Default,          // every layer as PyTorch's
  TruncatedNormal,  // weights of linear layers: normal, deviation 0.02, cut off at two deviations; biases 0
};

struct ViTOptions {
  std::int64_t channels = 3;
  Dims image{};  // {height, width}, multiples of the patch
  Dims patch{16, 16};
  std::int64_t width = 192;
  std::int64_t depth = 4;
  std::int64_t heads = 3;
  double mlp_ratio = 4.0;
  double dropout = 0.0;
  double attention_dropout = 0.0;  // of the weights of attention
  // Exactly one of the two: a map [N, out_channels, height, width], or scores [N, classes] from the mean over
  // all tokens.
  std::int64_t out_channels = 0;
  std::int64_t classes = 0;
  ViTInit init = ViTInit::Default;
  bool zero_head = false;  // the model starts by giving zeros
  std::uint64_t seed = 0;  // of the initial values and of dropout
  DType dtype = DType::F32;
};

class ViT : public Module {
 public:
  explicit ViT(const ViTOptions& options);
  // x [N, channels, height, width]
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  const ViTOptions& options() const { return options_; }
  // Shared by all dropouts: set its batch offset where samples are shared out, its stream to resume.
  Generator& dropout_generator() { return *dropout_generator_; }

  Conv2d embed;      // a patch to a token
  Tensor pos_embed;  // [1, tokens, width]
  ModuleList<TransformerBlock> blocks;
  LayerNorm norm;
  Linear head;

 private:
  Tensor to_map(const Tensor& tokens) const;
  void check_input(const Tensor& x) const;

  ViTOptions options_;
  GeneratorPtr dropout_generator_;
};

}  // namespace tessera::nn
