// Graphs of operations as their descriptors tell them, carried out by plain loops. Convolutions (forward and
// both gradients) and additions.
#pragma once
#include <map>
#include <string>

#include "emulated/cudnn_descriptors.h"

namespace tessera::emulated {

// What is wrong with the graph or not known here; empty if it can run.
std::string fault_of(const Descriptor& operation_graph);

// Carries it out. `pointers`: the addresses on the device by the tensors' ids.
void run_graph(const Descriptor& operation_graph, const std::map<std::int64_t, void*>& pointers);

// The ids that addresses must be given for, and the alignment each asks for.
std::map<std::int64_t, std::int64_t> needed_pointers(const Descriptor& operation_graph);

}  // namespace tessera::emulated
