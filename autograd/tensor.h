// Tensor: what users and models handle. An Array, a place in the tape and, when it is split over a mesh, a
// ShardSpec.
//
// A sharded Tensor *is* its global tensor: `sizes()` are global, every op means what it means on one device,
// and the placement is only how the value is stored. A plain tensor beside a sharded one counts as Replicate
// (the same value on every rank). Handles are cheap; copies are the same tensor.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "mesh/redistribute.h"
#include "runtime/array.h"

namespace tessera {

class Node;
class Tensor;
struct TensorImpl;
using Tensors = std::vector<Tensor>;
using TensorHook = std::function<Tensor(const Tensor& grad)>;

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;  // the backward pass is itself recorded (implies retain_graph)
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Array local);       // plain
  Tensor(Array local, SpecPtr spec);  // sharded; local sizes must be the spec's on this rank
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return impl_ != nullptr; }
  const Dims& sizes() const;                  // global
  std::int64_t size(std::int64_t dim) const;  // negative dims count from the end
  int dim() const { return sizes().size(); }
  std::int64_t numel() const;  // global
  DType dtype() const;
  Device device() const;

  // The local array. Never communicates.
  const Array& local() const;
  const SpecPtr& spec() const;  // null: plain
  bool is_sharded() const { return spec() != nullptr; }

  // The functions of the same name (ops/elementwise/elementwise.h), as PyTorch spells them. No messages.
  Tensor to(Device device) const;
  Tensor to(DType dtype) const;

  // ---- collectives over the mesh of a sharded tensor (plain tensors: no communication) ----
  Tensor redistribute(const SpecPtr& to) const;  // memory: maybe a view of this tensor's, clone() to be sure
  Tensor redistribute(const Placements& placements) const;
  Tensor redistribute(const DeviceMesh& mesh, const Placements& placements) const;  // autograd/adjoints.h
  Tensor full_tensor() const;             // plain, whole, on every rank
  double item() const;                    // of a one-element tensor: its whole value, on every rank
  std::vector<double> to_vector() const;  // full_tensor in row-major order

  // ---- autograd ----
  bool requires_grad() const;
  Tensor& set_requires_grad(bool on = true);  // leaves only
  bool is_leaf() const;
  const std::shared_ptr<Node>& grad_fn() const;
  // The accumulated gradient of a leaf, in the leaf's own placement. Sums over ranks that are still owed are
  // made when it is read: a collective then, like every other function of this block. Undefined if there is
  // none.
  Tensor grad() const;
  // Of the tensor's sizes and dtype.
  void set_grad(const Tensor& grad) const;
  void zero_grad() const { set_grad(Tensor()); }
  // d(this)/d(leaves). Without `grad`, this must have one element. Collective if anything is sharded.
  void backward(const Tensor& grad = Tensor(), const BackwardOptions& options = {}) const;
  Tensor detach() const;  // same memory, no history
  // Sees, and may replace by one of its dtype and sizes, the gradient in each backward pass. Returns an id.
  int register_hook(TensorHook hook) const;
  void remove_hook(int id) const;
  // A write to a tensor through its array must be followed by this, so that backward can tell.
  void bump_version() const { local().bump_version(); }

  const std::shared_ptr<TensorImpl>& impl() const { return impl_; }
  bool same(const Tensor& o) const { return impl_ == o.impl_; }

 private:
  std::shared_ptr<TensorImpl> impl_;
};

// A Tensor known to be sharded: the same object, checked once.
class ShardTensor : public Tensor {
 public:
  ShardTensor(const Tensor& t);  // NOLINT: refuses a plain tensor
  const Placements& placements() const { return spec()->placements(); }
  DeviceMesh mesh() const { return spec()->mesh(); }
  // No communication; the local sizes are checked against the spec.
  static ShardTensor from_local(const Array& local, const SpecPtr& spec);
  // One all-gather of sizes and placements over the mesh, which are checked: cut dims are concatenated in
  // rank order, all else must agree on every rank; refuses on every rank alike.
  static ShardTensor from_local(const Array& local, const DeviceMesh& mesh, const Placements& placements);
};

// Operations are recorded on the tape unless this thread switched it off.
bool grad_enabled();
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

}  // namespace tessera
