// Self-attention, the two-layer perceptron, and the pre-norm block made of them (Vaswani et al. 2017, Xiong
// et al. 2020; names of the parts as in timm's vision transformers).
//
// x is [N, T, width] throughout. T may be cut in any way: only the attention itself communicates (its ring),
// everything else is local.
#pragma once
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention/attention.h"

namespace tessera::nn {

struct TransformerOptions {
  std::int64_t width = 0;
  std::int64_t heads = 1;
  double mlp_ratio = 4.0;
  double dropout = 0.0;            // after attention, after the activation and after the perceptron
  double attention_dropout = 0.0;  // of the weights of attention: PyTorch's MultiheadAttention(dropout)
  bool bias = true;
  bool is_causal = false;
  double eps = 1e-5;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;          // of initial values, see LinearOptions
  GeneratorPtr dropout_generator = nullptr;  // needed if one of the two is above 0
};

// One linear layer makes queries, keys and values, in this order, of all heads.
class MultiheadAttention : public Module {
 public:
  explicit MultiheadAttention(const TransformerOptions& options);
  Tensor forward(const Tensor& x) override;

  Linear qkv;   // width -> 3 width
  Linear proj;  // width -> width
  Dropout dropout;

 private:
  std::int64_t heads_;
  AttentionOptions attention_;
};

// width -> mlp_ratio · width -> width, with GELU.
class Mlp : public Module {
 public:
  explicit Mlp(const TransformerOptions& options);
  Tensor forward(const Tensor& x) override;

  Linear fc1;
  Linear fc2;
  Dropout dropout;
};

// x + branch, not yet added: the norm that reads the sum makes it in its own pass over memory.
struct ResidualSum {
  Tensor x = Tensor();
  Tensor branch = Tensor();  // undefined: x alone
  Tensor value() const;
  AddLayerNorm normed(LayerNorm& norm) const;  // the sum and its norm
};

// x += attn(norm1(x)); x += mlp(norm2(x)).
class TransformerBlock : public Module {
 public:
  explicit TransformerBlock(const TransformerOptions& options);
  Tensor forward(const Tensor& x) override { return forward_residual({.x = x}).value(); }
  // The same for a chain of blocks, where the next norm makes the last sum of this one.
  ResidualSum forward_residual(ResidualSum x);

  LayerNorm norm1;
  MultiheadAttention attn;
  LayerNorm norm2;
  Mlp mlp;
};

}  // namespace tessera::nn
