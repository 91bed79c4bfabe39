// Nodes of the tape, and tensors that they keep.
#include "autograd/node.h"

#include <algorithm>
#include <utility>

#include "runtime/error.h"

namespace tessera {

bool any_requires_grad(std::span<const Tensor> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
}

Node::~Node() {
  // A chain of nodes is taken apart by a loop, not by nested destructors: graphs may be very long.
  thread_local std::vector<std::shared_ptr<Node>> waiting;
  thread_local bool draining = false;
  for (Edge& e : edges)
    if (e.node && !e.node->leaf) waiting.push_back(std::move(e.node));
  gradient = nullptr;
  if (draining) return;
  draining = true;
  while (!waiting.empty()) {
    const std::shared_ptr<Node> next = std::move(waiting.back());
    waiting.pop_back();
  }
  draining = false;
}

LeafState& leaf_state(const Tensor& leaf) {
  TS_CHECK(leaf.defined() && leaf.impl()->leaf, "leaf_state",
           "the tensor is not a leaf that requires a gradient");
  return *leaf.impl()->leaf;
}
const Tensor& pending_grad(const Tensor& leaf) { return leaf_state(leaf).grad; }

SavedTensor::SavedTensor(const Tensor& input) : tensor_(input) {
  if (input.defined()) version_ = input.local().version();
}

SavedTensor SavedTensor::output(const Tensor& result) {
  SavedTensor s(result.detach());
  s.is_output_ = true;
  s.node_ = result.grad_fn();
  s.output_ = result.impl()->output;
  return s;
}

Tensor SavedTensor::unpack(const char* op) const {
  if (!tensor_.defined()) return {};
  TS_CHECK(tensor_.local().version() == version_, op,
           "a tensor of sizes {} that backward needs was changed in place (version {}, was {})",
           tensor_.sizes().str(), tensor_.local().version(), version_);
  if (!is_output_) return tensor_;
  Tensor t = tensor_.detach();
  if (auto node = node_.lock()) {
    t.impl()->grad_fn = node;
    t.impl()->requires_grad = true;
    t.impl()->output = output_;
  }
  return t;
}

}  // namespace tessera
