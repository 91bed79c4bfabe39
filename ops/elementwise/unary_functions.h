// The operations that take one tensor and nothing else, by name, for what walks over all of them:
// conformance programs, the bench, tests.
#pragma once
#include <span>

#include "ops/elementwise/elementwise.h"

namespace tessera {

struct UnaryFunction {
  const char* name;
  Tensor (*call)(const Tensor& x);
};

// Those of a real argument that have a gradient: not sign.
inline std::span<const UnaryFunction> unary_functions() {
  static constexpr UnaryFunction kAll[] = {
      {"relu", &relu},
      {"silu", &silu},
      {"sigmoid", &sigmoid},
      {"tanh", &tanh},
      {"exp", &exp},
      {"log", &log},
      {"sqrt", &sqrt},
      {"rsqrt", &rsqrt},
      {"abs", &abs},
      {"neg", &neg},
      {"square", &square},
      {"sin", &sin},
      {"cos", &cos},
      {"erf", &erf},
      {"softplus", [](const Tensor& x) { return softplus(x); }},
      {"reciprocal", &reciprocal},
  };
  return kAll;
}

}  // namespace tessera
