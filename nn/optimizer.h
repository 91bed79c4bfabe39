// Optimizers: what they share.
//
// A step reads every parameter's gradient (Tensor::grad(), which makes sums over ranks that are still owed:
// a collective then, unless a DataParallel has reduced them already), and changes all parameters of a group
// in one pass over the memory. A parameter without a gradient is left alone, its state too. State is made
// when a parameter first gets a gradient, and afterwards a step takes no memory.
//
// Nothing here communicates otherwise: gradients are the same bits on every rank, and so is what follows.
//
// A step on a device can be captured in a graph (runtime/graph.h), once its state is there: every replay is
// one step, with the learning rate that is set then. Options, groups and max_norm are frozen; the optimizer
// must live when a replay begins.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/clip.h"
#include "nn/module.h"

namespace tessera {
class GraphCapture;
}

namespace tessera::optim {

// Parameters that are treated alike.
struct ParamGroup {
  Tensors params;
  std::optional<double> weight_decay = std::nullopt;  // else the optimizer's
  double lr_scale = 1.0;                              // times the optimizer's learning rate
};

// Two groups: weights, which decay, and biases, norms (all parameters of at most one dim) and embeddings
// (named "…embed…" or "pos…"), which do not.
std::vector<ParamGroup> decay_groups(const nn::Module& module, double weight_decay);

// One entry of an optimizer's state: "3.exp_avg" belongs to the fourth parameter, counted over all groups.
struct StateEntry {
  std::string name;
  Array value;  // of a sharded parameter: this rank's part
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  // The same as clip_grad_norm_ over all parameters and then step(), with one pass less over the gradients:
  // they are scaled as they are read, and stay as they are. Returns the norm, which waits for a device only
  // if it is read. Collective where that is.
  GradNorm step_clipped(double max_norm);
  void zero_grad() const;
  double lr() const { return lr_; }
  // For schedules: optimizer.set_lr(schedule(step)).
  void set_lr(double lr);
  const std::vector<ParamGroup>& groups() const { return groups_; }

  // What is needed to go on where a run stopped. Empty before the first step.
  std::vector<StateEntry> state() const;
  // Refuses an unknown name or a misshapen value by name, before anything is changed. Values are copied.
  void load_state(const std::vector<StateEntry>& entries);

 protected:
  // Parameters of one group that have made the same number of steps.
  struct Batch {
    std::vector<Array> params;
    std::vector<Array> grads;                 // dtype and memory order of the parameters
    std::vector<std::vector<Array>> buffers;  // [buffer name][parameter]
    double lr = 0;
    std::optional<double> weight_decay;
    double grad_scale = 1;
    std::int64_t step = 0;  // counted from 1
    Array scalars;          // beside a device: F64 {lr, step, grad_scale} in its memory, which stays the same
    std::vector<std::size_t> slots;
    void clear();
  };
  // `op`: for errors. `buffer_names`: state arrays of a parameter's shape, zero at first.
  Optimizer(const char* op, std::vector<ParamGroup> groups, double lr, std::vector<std::string> buffer_names);
  virtual void update(Device device, const Batch& batch) = 0;

 private:
  struct Slot {
    Tensor param;
    std::size_t group = 0;
    std::int64_t steps = 0;
    std::vector<Array> buffers;
    bool waiting = false;  // in the running step
  };
  void step_scaled(const Array& grad_scale);
  void set_scalars(std::size_t batch, Device device, const Array& grad_scale);
  void set_captured_scalars(GraphCapture& graph, const Array& grad_scale);
  void check_replay(const std::vector<std::size_t>& slots) const;
  void replay_step(const std::vector<std::size_t>& slots, const Array& scalars);
  void add_to_batch(std::size_t slot);
  void make_buffers(Slot& slot) const;
  std::pair<std::size_t, std::size_t> find_entry(const StateEntry& entry) const;

  const char* op_;
  std::vector<ParamGroup> groups_;
  double lr_;
  std::vector<std::string> buffer_names_;
  std::vector<Slot> slots_;
  Batch batch_;  // kept for its capacity
  // Of every batch of a step on a device, at the same address in every step: a step that is captured and
  // replayed reads there what the host has put there since.
  std::vector<Array> scalars_;
  // Graphs ask whether this optimizer still lives.
  std::shared_ptr<Optimizer*> self_;
};

}  // namespace tessera::optim
