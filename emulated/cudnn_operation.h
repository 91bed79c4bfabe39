// One operation of a graph: its tensors, and what is to be done with their elements.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "emulated/cudnn_tensor.h"

namespace tessera::emulated {

struct Operation {
  std::vector<Tensor> inputs;
  Tensor result;
  bool rounds_factors = false;  // those of f32, on tensor cores
  // The result's elements from the inputs', in their order.
  std::function<Values(const std::vector<Values>&)> run;
};

// Each reads what a descriptor says into `op`; what is wrong with it or not known here, or nothing.
std::string read_convolution(const Descriptor& d, Operation& op);
std::string read_pointwise(const Descriptor& d, Operation& op);
std::string read_product(const Descriptor& d, Operation& op);
std::string read_reduction(const Descriptor& d, Operation& op);
std::string read_view(const Descriptor& d, Operation& op);

// What is wrong with the type that `how` names for sums and functions: float, and double where a tensor is of
// doubles; the result's own, too, where that is a number of elements or yes and no.
std::string fault_of_compute(const Descriptor& how, cudnnBackendAttributeName_t name, const Operation& op);

}  // namespace tessera::emulated
