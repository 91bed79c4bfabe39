// Which convolutions cuDNN is given, and how they are brought into the form that it takes. Decided from sizes
// and types alone, before anything is called: a plan that cuDNN refuses afterwards is an error, and the test
// cudnn_plans looks for such.
#pragma once
#include "ops/cpu/conv_problem.h"
#include "ops/cuda/cudnn_graphs.h"

namespace tessera::cuda {

// cuDNN pads both ends alike. So it sees a map of its own where that does not do: zeros (`front`), the first
// `taken` elements of x, and zeros up to the size in the graph.
struct ConvForm {
  ConvGraph graph;
  Dims front;  // per spatial dim
  Dims taken;
  // Whether the map that cuDNN sees is x itself.
  bool whole = true;
};
// `tf32`: as in ConvGraph. `bias`: one is added; the graph takes it where it can.
ConvForm conv_form(ConvKind kind, const cpu::ConvProblem& p, bool bias, bool tf32);

// Why our own kernel works it out; nullptr: cuDNN does.
const char* why_own_kernel(const ConvGraph& graph);

}  // namespace tessera::cuda
