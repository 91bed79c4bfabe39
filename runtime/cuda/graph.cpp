// CUDA graphs of the compute stream (runtime/graph.h). Relaxed mode: memory may be taken from the driver
// while a capture is under way, which touches no stream that is captured.
#include <cuda_runtime_api.h>

#include "runtime/cuda/api.h"
#include "runtime/cuda/register.h"
#include "runtime/graph_capture.h"

namespace tessera::cuda {
namespace {

void begin() {
  check(cudaStreamBeginCapture(compute_stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
}

void* end() {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(compute_stream(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  ignore(cudaGraphDestroy(graph));
  check(made, "cudaGraphInstantiate");
  return executable;
}

void give_up() {
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(compute_stream(), &graph);
  ignore(ended == cudaSuccess ? cudaGraphDestroy(graph) : ended);  // a capture that failed has no graph
}

void launch(void* executable) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), compute_stream()), "cudaGraphLaunch");
}
// One that is under way is dropped by the driver when it is over.
void drop(void* executable) { ignore(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable))); }

}  // namespace

void register_graphs() { set_graph_backend(Device::Cuda, {&begin, &end, &give_up, &launch, &drop}); }

}  // namespace tessera::cuda
