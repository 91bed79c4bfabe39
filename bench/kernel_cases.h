// The kernels that `tessera-bench --only kernels` times, on one rank: convolutions, linear layers, norms,
// pointwise functions and attention in sizes that networks have.
//
// A case is an op on plain tensors. Its backward pass is timed alone, all gradients of a forward pass that
// was recorded once. Images lie as a convolution would have left them (channels last).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace tessera::bench {

// What one call works or moves at least: flops, or bytes of its operands and results.
struct Effort {
  double forward = 0;
  double backward = 0;  // 0: no backward pass of its own
};

// What one call gives: one tensor, mostly.
struct Results : Tensors {
  Results(Tensor one) : Tensors{std::move(one)} {}           // NOLINT: meant to convert
  Results(Tensors several) : Tensors(std::move(several)) {}  // NOLINT
};

struct KernelCase {
  std::string family;  // conv, conv hole, linear, norm, fused, pointwise, map, attention
  std::string name;    // "conv 64 to 128, 3x3, stride 2"
  std::string shape;   // of the input
  std::string recipe;  // JSON: what another library needs to know to do the same
  Tensors inputs;      // those that get a gradient
  std::function<Results()> run;
  Effort effort;
  bool memory_bound = false;  // efforts are bytes
};

// `quick`: a few small ones.
std::vector<KernelCase> kernel_cases(bool quick);

}  // namespace tessera::bench
