// Random tensors and dropout: the same bits on every mesh and partition.
//
// A value depends on the generator's seed, the number of draws before and the *global* index of the element.
// Where a batch is shared out over ranks that do not see each other's samples (the ddp axis), the position of
// this rank's first sample is told to the generator, and element (b, …) draws what sample offset + b would
// draw.
#pragma once
#include <memory>

#include "autograd/tensor.h"

namespace tessera {

class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : seed_(seed) {}
  std::uint64_t seed() const { return seed_; }
  // Every random call takes the next stream; equal on all ranks because all make the same calls.
  std::uint64_t next_stream() { return stream_++; }
  std::uint64_t stream() const { return stream_; }
  void set_stream(std::uint64_t stream) { stream_ = stream; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }
  // Global position of dim 0's first element, for dropout of a batch that is shared out.
  std::int64_t batch_offset() const { return batch_offset_; }
  void set_batch_offset(std::int64_t offset) { batch_offset_ = offset; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_ = 0;
  std::int64_t batch_offset_ = 0;
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
