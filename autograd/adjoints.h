// Gradients across ranks: the convention, in one place.
//
// A tensor stands for one global value, whatever its placement. Its gradient is a global value too, and
// changing a placement changes no value: so the gradient of every placement change is the identity, and where
// it has to be materialised in the input's placement the communication is the transpose of the forward one:
//
//   forward                              backward (dy as it comes)
//   Replicate -> Shard     (slice)       Shard -> Replicate     (all-gather), or kept as it is
//   Shard -> Replicate     (all-gather)  Replicate -> Shard     (slice); a Partial dy: reduce-scatter
//   Shard(a) -> Shard(b)   (exchange)    Shard(b) -> Shard(a)   (reverse exchange)
//   Partial -> Replicate   (all-reduce)  Replicate: every term's gradient is the whole dy, nothing moves
//   Partial -> Shard       (reduce-scatter)  Shard -> Replicate (all-gather)
//   Replicate or Shard -> Partial        nothing moves
//   halo window x -> buffer (exchange)   buffer -> x: reverse exchange, adding at the owner
//   mesh A -> mesh B       (exchange)    mesh B -> mesh A, at once: the producer's operations know A only
//
// A plain tensor used beside sharded ones is Replicate; the gradient of a parameter is therefore a sum over
// the ranks that used it, which stays Partial at the leaf until it is read or reduced in a bucket: one
// message for all mesh axes.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// Differentiable placement change; `t` may be plain (then it counts as Replicate on the spec's mesh). The
// spec may be on another mesh of the same ranks (mesh/redistribute.h). Collective over the mesh; refuses a
// spec of other global sizes, and a mesh of other ranks.
Tensor redistribute(const Tensor& t, const SpecPtr& to);
// Onto `mesh` with one placement per axis. Dims keep their cuts where `mesh` is the tensor's own and the axes
// that cut them stay the same; other cuts are the default ones (ShardSpec::make).
Tensor redistribute(const Tensor& t, const DeviceMesh& mesh, const Placements& placements);
// The same for who only reads it. What `t` owes (Partial) is made once: it is kept with t and handed to
// whoever asks again, from where another placement moves no more than from the terms, and its gradients come
// together before they go on to t. It goes with t, or when t or what was made is written to (bump_version, on
// every rank): until then both take memory. A graph that is captured makes its own.
Tensor settled(const Tensor& t, const SpecPtr& to);
// The same of one that a plan knows to lie as `from`: by its spec, or replicated where it is plain.
Tensor settled(const Tensor& t, const SpecPtr& from, const SpecPtr& to);
// Several tensors of one mesh, each settled as its spec (null: left as it is). Sums that are owed along the
// same axes are made in one message, and one for a tensor that comes twice.
Tensors settled(std::span<const Tensor> tensors, std::span<const SpecPtr> to);
// A gradient that came by way of another mesh, placed as `like` is, sums made; any other as it is.
Tensor on_mesh_of(const SpecPtr& like, const Tensor& gradient);
// A plain tensor as a Replicate one, without communication or copy.
Tensor as_replicated(const Tensor& plain, const DeviceMesh& mesh);

}  // namespace tessera
