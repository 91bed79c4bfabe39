// Activations and dropout as modules, for Sequential.
#pragma once
#include "nn/module.h"
#include "ops/elementwise/elementwise.h"

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
using Softplus = Pointwise<&tessera::softplus>;

class Gelu : public Module {
 public:
  explicit Gelu(GeluKind kind = GeluKind::None) : kind_(kind) {}
  Tensor forward(const Tensor& x) override { return gelu(x, kind_); }

 private:
  GeluKind kind_;
};

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
