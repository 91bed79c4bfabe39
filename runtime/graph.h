// CUDA graphs: work of the device that is recorded once and launched again as one.
//
//   step();  step();                    // eager: plans, tables, state and communicators are made
//   CudaGraph graph;
//   graph.capture_begin();
//   step();                             // nothing runs: all that it launches becomes part of the graph
//   graph.capture_end();
//   for (...) { input.copy_(batch); graph.replay(); }
//
// A replay does on the device what the captured calls would do there, in the same memory, with the arguments
// that they had, and costs the host one launch. So in a capture
//   * shapes, arguments and addresses are frozen. Inputs are copied into the tensors that the graph reads,
//     before replay(); results are read from those that it writes, after it.
//   * the host may not wait for the device, nor send values of its own there: both are refused, with the
//     operation's name. Whatever else the host does runs once, in the capture.
//   * memory is taken from a pool of the graph's own. It stays reserved as long as the graph lives, and
//     nobody else gets it, though the tensors are gone. Pools may be shared by graphs that are replayed one
//     after another: their results are then those of the last replay.
//   * messages go by NCCL and are captured too: every rank captures and replays the same. Messages by way of
//     the host are refused. The recorder (comm/recorder.h) counts the calls at every replay, and not in the
//     capture.
// What changes from step to step lies in the device's memory and is written there by replay(): draws of a
// Generator (every replay takes the streams that eager calls would take), learning rate and step number of an
// Optimizer. Generators' seeds and batch offsets and what was given by value (weight decay, the norm that is
// clipped to, momentum of norms) are frozen; where that can be seen, replay() refuses.
//
// One capture at a time, by one thread; what other threads launch meanwhile is captured too. Field names are
// those of torch.cuda.CUDAGraph.
#pragma once
#include <memory>

namespace tessera {

class GraphCapture;

// Memory of graphs; goes back to the allocator when the last graph and the last handle are gone.
class GraphPool {
 public:
  GraphPool() = default;  // none
  explicit GraphPool(int id);
  int id() const { return held_ ? *held_ : 0; }

 private:
  std::shared_ptr<const int> held_;
};

class CudaGraph {
 public:
  CudaGraph();
  // A capture that was not ended is given up. Replays under way go on.
  ~CudaGraph();
  CudaGraph(CudaGraph&&) noexcept;
  CudaGraph& operator=(CudaGraph&&) noexcept;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Refuses where there is no CUDA device, where a capture is under way, or where this one has been captured.
  // `pool`: of another graph (pool()), else a new one.
  void capture_begin(const GraphPool& pool = {});
  // Refuses what CUDA refuses (such as messages that were begun but never waited for); the graph is empty
  // then.
  void capture_end();
  // Asynchronous, in the order of the compute stream. Refuses a graph that is empty, and where what it was
  // captured with has gone or changed; no step is counted then, and nothing drawn.
  void replay();
  // Gives up what was captured.
  void reset();
  bool captured() const;
  GraphPool pool() const;

 private:
  std::unique_ptr<GraphCapture> capture_;
};

}  // namespace tessera
