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
// What is done to a forward pass's sums. The graph takes the bias along, and the activation where it may; one
// that the graph does not name follows as a pass of its own.
struct ConvAfter {
  bool bias = false;
  cpu::Activation activation = cpu::Activation::None;
  bool keeps = false;  // z is wanted
};
// `tf32`: as in ConvGraph.
ConvForm conv_form(ConvKind kind, const cpu::ConvProblem& p, const ConvAfter& after, bool tf32);

// Whether cuDNN has an engine for the graph's activation: for ReLU after a bias in every type (whose z is not
// wanted), for all in 16 bits and TF32 if there is one group and 16 bytes hold whole channels. Of f32 and f64
// it has one that uses no tensor cores, or none, and for groups it looks for one for minutes.
bool takes_activation(const ConvGraph& graph);

// Why our own kernel works it out; nullptr: cuDNN does.
const char* why_own_kernel(const ConvGraph& graph);

}  // namespace tessera::cuda
