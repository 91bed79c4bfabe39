// StepGraph: a training step that becomes a CUDA graph by itself.
//
//   train::StepGraph graph(world);
//   for (int i = 0; i < steps; ++i) {
//     input.copy_(batch);                        // into the tensors that the step reads
//     optimizer.set_lr(schedule(i));
//     const Tensor loss = graph.run([&] {        // forward, backward, optimizer.step()
//       const Tensor loss = mse_loss(model(x), y);
//       optimizer.zero_grad();
//       loss.backward();
//       optimizer.step();
//       return loss;
//     });
//   }
//
// The first runs are made as they are; then the step is captured, once, and every further run is one launch
// (runtime/graph.h says what is frozen). The results are those of eager steps, bit for bit.
#pragma once
#include <functional>
#include <map>

#include "autograd/tensor.h"
#include "comm/communicator.h"
#include "runtime/graph.h"

namespace tessera::train {

class StepGraph {
 public:
  // Ranks that make the steps together. `warmup`: eager runs before the capture, at least 1, in which plans,
  // state and communicators are made. Refuses where there is no CUDA device.
  explicit StepGraph(const Communicator& comm, int warmup = 3);

  // Collective. `step` answers a tensor that it works out, such as the loss; from the capture on that is
  // memory of the graph, which the next run writes over. Steps of different shapes or placements are of
  // different kinds: each has a graph of its own, and all share their memory. A capture is refused on all
  // ranks if it is on one: where the step's messages went by MPI, before anything is captured;
  // else with what the captured step was refused with or threw. Gradients hold nothing then, and the next run
  // captures anew.
  Tensor run(const std::function<Tensor()>& step, int kind = 0);
  // Whether the next run of this kind is a replay.
  bool captured(int kind = 0) const;

 private:
  struct Kind {
    int runs = 0;
    CudaGraph graph;
    Tensor result;
  };
  void capture(Kind& kind, const std::function<Tensor()>& step);

  Communicator comm_;
  int warmup_;
  std::int64_t by_mpi_ = 0;  // works of the last eager run
  GraphPool pool_;
  std::map<int, Kind> kinds_;
};

}  // namespace tessera::train
