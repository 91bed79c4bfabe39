// Graphs of operations as their descriptors tell them, carried out by plain loops: convolutions and their
// gradients (cudnn_conv.cpp), matrix products, reductions, views and element-wise operations
// (cudnn_nodes.cpp), of which the frontend makes attention.
#pragma once
#include <map>
#include <string>

#include "emulated/cudnn_descriptors.h"

namespace tessera::emulated {

// What is wrong with the graph or not known here; empty if it can run.
std::string fault_of(const Descriptor& operation_graph);

// What a call gives, by the tensors' ids.
struct Operands {
  std::map<std::int64_t, void*> addresses;  // on the device
  std::map<std::int64_t, double> numbers;   // handed over by value
  bool tensor_cores = false;                // of the engine
  bool unwanted = false;                    // an engine that gives NaN
};
// Sorts what the caller points to; what is missing or not as it was promised, or nothing.
std::string take_operands(const Descriptor& operation_graph, const std::map<std::int64_t, void*>& pointers,
                          Operands& operands);

// Carries it out.
void run_graph(const Descriptor& operation_graph, const Operands& operands);

}  // namespace tessera::emulated
