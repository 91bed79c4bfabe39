// Module: a part of a model, with named parameters and buffers.
//
//   class Head : public nn::Module {
//    public:
//     explicit Head(std::int64_t width) : fc1(width, 64), fc2(64, 1) {
//       register_module("fc1", fc1);
//       register_module("fc2", fc2);
//     }
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
//     nn::Linear fc1, fc2;
//   };
//
// Parts are ordinary members; a module neither moves nor is copied, so that registering a member by reference
// is safe. Names are PyTorch's ("blocks.0.attn.qkv.weight"): a module's own parameters first, then those of
// its parts, in order of registration. A tensor registered in two places (tied weights) appears once, under
// its first name.
//
// A module knows nothing of ranks: parameters are plain tensors with the same value on every rank, and
// forward works unchanged when the input is sharded.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tensor.h"
#include "ops/random/random.h"

namespace tessera::nn {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Modules of one input override this; the base refuses.
  virtual Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x) { return forward(x); }

  // ---- parameters and buffers ----
  Tensors parameters() const;
  std::vector<NamedTensor> named_parameters() const;
  std::vector<NamedTensor> named_buffers() const;
  // Parameters, then buffers: what a checkpoint holds.
  std::vector<NamedTensor> state() const;
  // Copies values by name (converted to the own dtype). Refuses a missing, unknown or misshapen entry by
  // name, before anything is changed.
  void load_state(const std::vector<NamedTensor>& entries);
  // By full name; refuses an unknown one.
  Tensor parameter(const std::string& name) const;
  Tensor buffer(const std::string& name) const;
  std::int64_t num_parameters() const;  // elements
  void zero_grad() const;

  // ---- parts ----
  // "" is this module itself, then depth first in order of registration.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Parts first, then the module itself.
  void apply(const std::function<void(Module&)>& f);

  // ---- modes ----
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  // Converts floating parameters and buffers in place: tensors keep their identity, gradients are dropped.
  // Between steps, before an optimizer has made its state.
  void to(DType dtype);
  // Parameters and buffers go to the device; gradients are dropped. Before an optimizer is made of them.
  void to(Device device);

  // Draws all initial values again: parts in order of registration, then the module itself. The values depend
  // on the seed and on the order of registration only, never on a mesh.
  void initialize(std::uint64_t seed);
  // The initial values of this module's own parameters (parts have drawn theirs already).
  virtual void reset_parameters(Generator&) {}

 protected:
  // Returns the tensor, which now requires a gradient. An undefined tensor is an absent parameter.
  Tensor register_parameter(const std::string& name, const Tensor& value);
  Tensor register_buffer(const std::string& name, const Tensor& value);
  // `child` must live as long as this module: a member, or owned by one.
  void register_module(const std::string& name, Module& child);

 private:
  enum class Kind { Parameters, Buffers };
  void check_name(const std::string& name) const;
  void collect(Kind kind, const std::string& prefix, std::vector<NamedTensor>& out) const;
  void collect_modules(const std::string& prefix, std::vector<std::pair<std::string, Module*>>& out);
  std::vector<NamedTensor> collected(Kind kind) const;

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  bool training_ = true;
};

}  // namespace tessera::nn
