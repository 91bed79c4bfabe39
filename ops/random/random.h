// Random tensors and dropout: the same bits on every mesh and partition.
//
// A value depends on the generator's seed, the number of draws before and the *global* index of the element.
// Where a batch is shared out over ranks that do not see each other's samples (the ddp axis), the position of
// this rank's first sample is told to the generator, and element (b, …) draws what sample offset + b would
// draw.
#pragma once
#include <memory>

#include "autograd/tensor.h"
#include "runtime/rng_key.h"

namespace tessera {

class GraphCapture;

class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : state_(std::make_shared<State>()) { state_->seed = seed; }
  // A copy goes on by itself.
  Generator(const Generator& o) : state_(o.state_->alone()) {}
  Generator& operator=(const Generator& o) {
    if (this != &o) state_ = o.state_->alone();
    return *this;
  }
  ~Generator() = default;
  std::uint64_t seed() const { return state_->seed; }
  // Every random call takes the next stream; equal on all ranks because all make the same calls.
  std::uint64_t next_stream() { return state_->stream++; }
  std::uint64_t stream() const { return state_->stream; }
  void set_stream(std::uint64_t stream) { state_->stream = stream; }
  void set_seed(std::uint64_t seed) { state_->seed = seed; }
  // Global position of dim 0's first element, for dropout of a batch that is shared out.
  std::int64_t batch_offset() const { return state_->batch_offset; }
  void set_batch_offset(std::int64_t offset) { state_->batch_offset = offset; }
  // Seed and next stream for a call that works on `device`. In the capture of a graph (runtime/graph.h):
  // every replay takes as many streams as the captured calls, from wherever this generator is then.
  RngKey next_key(Device device);

 private:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;
    std::int64_t batch_offset = 0;
    // In a capture: where it began, and the device's copy of where a replay begins.
    const GraphCapture* capture = nullptr;
    std::uint64_t first = 0;
    Array drawn;

    std::shared_ptr<State> alone() const;
    void join(const std::shared_ptr<State>& self, GraphCapture& graph);
  };
  std::shared_ptr<State> state_;
};
using GeneratorPtr = std::shared_ptr<Generator>;

// x·keep/(1 − p); keep is 1 with probability 1 − p. p in [0, 1).
Tensor dropout(const Tensor& x, double p, Generator& generator);
// Plain tensors (spec null) or this rank's part under a spec.
Tensor rand(const Dims& sizes, Generator& generator, DType dtype = DType::F32, const SpecPtr& spec = nullptr);
Tensor randn(const Dims& sizes, Generator& generator, DType dtype = DType::F32,
             const SpecPtr& spec = nullptr);
// Uniform in [lo, hi), and the normal distribution cut off at ±2 standard deviations: into an existing leaf.
void uniform_(const Tensor& x, double lo, double hi, Generator& generator);
void normal_(const Tensor& x, double mean, double std, Generator& generator);
void trunc_normal_(const Tensor& x, double mean, double std, Generator& generator);

Tensor zeros(const Dims& sizes, DType dtype = DType::F32);
Tensor ones(const Dims& sizes, DType dtype = DType::F32);
Tensor full(const Dims& sizes, double value, DType dtype = DType::F32);
Tensor zeros_like(const Tensor& x);  // same placement (Partial axes: Replicate)
Tensor ones_like(const Tensor& x);
Tensor full_like(const Tensor& x, double value);
Tensor tensor(std::span<const double> values, const Dims& sizes, DType dtype = DType::F32);

}  // namespace tessera
