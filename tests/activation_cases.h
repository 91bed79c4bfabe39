// What an operation with its activation and the two one after the other are compared by: values, gradients
// and gradients of gradients.
#pragma once
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "ops/ops.h"

namespace tessera::activation_cases {

struct Kind {
  const char* name;
  NormActivation fused;
  Tensor (*alone)(const Tensor&);
};
inline const std::array<Kind, 4> kKinds{
    Kind{"relu", NormActivation::Relu, [](const Tensor& x) { return relu(x); }},
    Kind{"silu", NormActivation::Silu, [](const Tensor& x) { return silu(x); }},
    Kind{"gelu", NormActivation::Gelu, [](const Tensor& x) { return gelu(x); }},
    Kind{"gelu, tanh", NormActivation::GeluTanh, [](const Tensor& x) { return gelu(x, GeluKind::Tanh); }}};

// Results, gradients along dy, gradients of a sum of those times fixed directions.
inline std::vector<std::vector<double>> derivatives(const Tensors& inputs, const Tensors& directions,
                                                    const std::function<Tensor(const Tensors&)>& f,
                                                    const Tensor& dy) {
  const Tensor y = f(inputs);
  std::vector<std::vector<double>> all{y.to_vector()};
  const auto put = [&](const Tensors& list) {
    for (const Tensor& t : list) all.push_back(t.defined() ? t.to_vector() : std::vector<double>());
  };
  put(grad({y}, inputs, {dy}, {.retain_graph = true}));  // the fused pass
  const Tensors first = grad({y}, inputs, {dy}, {.create_graph = true});
  put(first);
  Tensors again;
  Tensors along;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!first[i].defined() || !first[i].requires_grad()) continue;
    again.push_back(first[i]);
    along.push_back(directions[i]);
  }
  put(grad(again, inputs, along));
  return all;
}

inline double tolerance(DType dtype) { return dtype == DType::F64 ? 1e-10 : 2e-4; }

inline void check_same(const std::vector<std::vector<double>>& got,
                       const std::vector<std::vector<double>>& want, DType dtype) {
  REQUIRE(got.size() == want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    REQUIRE(got[k].size() == want[k].size());
    double scale = 1;
    double worst = 0;
    for (const double w : want[k]) scale = std::max(scale, std::abs(w));
    for (std::size_t i = 0; i < got[k].size(); ++i) worst = std::max(worst, std::abs(got[k][i] - want[k][i]));
    INFO("part " << k);
    CHECK(worst <= tolerance(dtype) * scale);
  }
}

}  // namespace tessera::activation_cases
