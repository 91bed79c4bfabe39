// gradcheck: gradients against finite differences, for ops, layers and whole models, plain or sharded.
#pragma once
#include "autograd/node.h"

namespace tessera {

struct GradcheckOptions {
  double step = 1e-6;       // central differences
  double tolerance = 1e-6;  // |analytic - numeric| <= tolerance · max(1, |numeric|)
  int max_elements = 0;     // per input; 0: all (else an even selection)
  bool second = false;      // also check the gradient of a fixed combination of the gradients
  std::uint64_t seed = 1;   // of the cotangents
};
struct GradcheckResult {
  bool ok = true;
  double worst = 0;     // largest error, relative as above
  std::string message;  // where, got and expected
};

// `f` maps float64 leaves to one or more tensors; inputs that require a gradient are checked. Collective if
// anything is sharded; every rank gets the same verdict. The inputs' values are changed and put back.
GradcheckResult gradcheck(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs,
                          const GradcheckOptions& options = {});

}  // namespace tessera
