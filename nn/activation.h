// Activations and dropout as modules, for Sequential.
#pragma once
#include "nn/module.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/softmax.h"
#include "runtime/error.h"

namespace tessera::nn {

template <Tensor (*F)(const Tensor&)>
class Pointwise : public Module {
 public:
  Tensor forward(const Tensor& x) override { return F(x); }
};
using Relu = Pointwise<&tessera::relu>;
using Silu = Pointwise<&tessera::silu>;
using Sigmoid = Pointwise<&tessera::sigmoid>;
using Tanh = Pointwise<&tessera::tanh>;

class Gelu : public Module {
 public:
  explicit Gelu(GeluKind kind = GeluKind::None) : kind_(kind) {}
  Tensor forward(const Tensor& x) override { return gelu(x, kind_); }

 private:
  GeluKind kind_;
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1.0, double threshold = 20.0) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }

 private:
  double beta_;
  double threshold_;
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }

 private:
  double slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }

 private:
  double alpha_;
};

template <Tensor (*F)(const Tensor&, std::int64_t, std::optional<DType>)>
class AlongDim : public Module {
 public:
  explicit AlongDim(std::int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return F(x, dim_, {}); }

 private:
  std::int64_t dim_;
};
using Softmax = AlongDim<&tessera::softmax>;
using LogSoftmax = AlongDim<&tessera::log_softmax>;

class Softmax2d : public Softmax {  // over the channels of [N, C, H, W] or [C, H, W]
 public:
  Softmax2d() : Softmax(-3) {}
  Tensor forward(const Tensor& x) override {
    TS_CHECK(x.defined() && (x.dim() == 3 || x.dim() == 4), "Softmax2d",
             "an input [N, C, H, W] or [C, H, W] is needed, given {}",
             x.defined() ? x.sizes().str() : "none");
    return Softmax::forward(x);
  }
};

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

// PyTorch's spellings.
using ReLU = Relu;
using SiLU = Silu;
using GELU = Gelu;

// While training, x·keep/(1 − p). The generator is shared by all dropouts of a model, so that every one of
// them draws its own mask; masks depend on global indices, not on the mesh.
class Dropout : public Module {
 public:
  explicit Dropout(double p, GeneratorPtr generator);
  Tensor forward(const Tensor& x) override;
  double p() const { return p_; }

 private:
  double p_;
  GeneratorPtr generator_;
};

}  // namespace tessera::nn
