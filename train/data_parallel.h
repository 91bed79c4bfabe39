// DataParallel: gradients of all ranks become one, in few messages that travel during backward.
//
//   DeviceMesh mesh(world, {{"ddp", 2}, {"domain", 4}});
//   train::sync_module(model, mesh);
//   train::DataParallel parallel(model, mesh);
//   …
//   loss.backward();   // afterwards every rank holds the same gradients
//   optimizer.step();
//
// Activations live on the sub-mesh of the domain axes (mesh["domain"]) or on the mesh itself; samples are
// shared out over the ddp axis, if there is one. The gradient of a parameter, as backward leaves it, is a sum
// that is still owed over the domain axes (Partial), or cut (Shard), or the same on all of them (Replicate,
// plain). Each rank puts its own term into a bucket: all of it where the sum is owed, its part where cut, and
// only on coordinate 0 of an axis over which the gradient is replicated, so that it counts once. One
// all-reduce over the whole mesh then makes both steps at once: the sum over the domain and, the terms being
// scaled by 1/ddp, the mean over ddp. A gradient whose own spec spans the ddp axis (a batch as Shard(0)) is
// global already and is only summed.
//
// A bucket starts as soon as its last gradient is there and moves while backward goes on; buckets start in a
// fixed order, the same on every rank. When backward ends, all are waited for. From then on the gradients
// *are* the bucket's memory, and the next backward writes there again.
//
// Batch norms (nn/batch_norm.h) are told how the batch is shared out, so that their statistics are those of
// all samples: a forward pass in training is then collective over the mesh, for a rank without samples too.
//
// Dropout counts samples from 0 on every rank unless told otherwise: for the bits of one rank, a rank's first
// sample goes into Generator::set_batch_offset (ops/random/random.h) before the forward pass.
//
// Unequal shares: the gradient is the mean over ddp of the ranks' gradients, so the loss of a rank must be
// weighted where ranks have different numbers of samples, see global_mean_weight. Every rank must run
// backward, also one without samples (on an empty batch), or call reduce().
#pragma once
#include <memory>

#include "mesh/device_mesh.h"
#include "nn/module.h"

namespace tessera::train {

struct DataParallelOptions {
  // 0: an eighth of all gradients, 64 KiB to 25 MiB, so that most of a small model's leave during backward,
  // too.
  std::int64_t bucket_bytes = 0;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20U;  // at most: the first message is to leave early
  std::string ddp_axis = "ddp";
  bool shared_batch_statistics = true;  // false: of each rank's own samples
};

class DataParallel {
 public:
  // Collective: checks that all ranks have the same parameters. A parameter can belong to one DataParallel
  // only. `module` must not change its parameters afterwards, and must live as long.
  DataParallel(nn::Module& module, const DeviceMesh& mesh, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // While one of these lives, backward only accumulates on each rank; the first backward after it reduces
  // the whole. Every rank alike.
  class NoSync {
   public:
    explicit NoSync(DataParallel& parallel);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& parallel_;
    bool previous_;
  };
  NoSync no_sync() { return NoSync(*this); }

  // Reduces what the leaves hold now, outside of backward. Collective: for a rank that has nothing to
  // differentiate, in the place of backward; a parameter that no rank has a gradient for stays without one.
  void reduce();

  std::size_t bucket_count() const;
  // Elements of a bucket's message: its gradients, and one per parameter that says whether there is any.
  std::int64_t bucket_elements(std::size_t bucket) const;
  std::int64_t bucket_bytes(std::size_t bucket) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

// What to multiply the mean over this rank's `local_count` samples with, so that the average over `ddp` ranks
// is the mean over all `global_count` samples. 0 for a rank without samples, whose mean over nothing would be
// NaN: there use the sum times global_sum_weight instead, which needs no local count.
double global_mean_weight(std::int64_t local_count, std::int64_t global_count, int ddp);
double global_sum_weight(std::int64_t global_count, int ddp);

// The mean over the ddp axis of a one-element tensor (the loss, for people to read). Collective over the
// mesh; no gradient. Just the value where the mesh has no such axis.
double mean_over_ddp(const Tensor& value, const DeviceMesh& mesh, const std::string& ddp_axis = "ddp");

}  // namespace tessera::train
