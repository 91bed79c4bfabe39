// The tape: one Node per recorded operation.
//
// A node holds the edges to the producers of its inputs and a gradient function written with public ops (so
// that it can be differentiated again). Gradients are global tensors in whatever placement they come out of
// the ops: sums that are owed stay owed (Partial) until somebody needs the value. Only those of outputs that
// are cut are brought to that cut first, where the node asks for it (`placed`): once for all that it
// computes, and before something larger has to move.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

struct Edge {
  std::shared_ptr<Node> node;  // null: no gradient wanted
  int output = 0;              // which output of that node
};

class BackwardContext {
 public:
  BackwardContext(const std::vector<Edge>& edges, bool last) : edges_(edges), last_(last) {}
  bool needs(std::size_t input) const { return edges_[input].node != nullptr; }
  // Nobody goes through this node again: a gradient may give up what it keeps as soon as it has used it.
  bool last() const { return last_; }

 private:
  const std::vector<Edge>& edges_;
  bool last_ = false;
};

// One gradient per input (undefined where not needed). Undefined incoming gradients are zeros.
using GradFunction = std::function<Tensors(const BackwardContext& context, const Tensors& grads)>;

struct LeafState;

class Node {
 public:
  Node(const char* op_name, std::uint64_t created) : name(op_name), sequence(created) {}
  ~Node();  // releases long chains without recursion
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  const char* name;
  std::uint64_t sequence;  // order of creation, the same on every rank
  std::vector<Edge> edges;
  GradFunction gradient;  // empty once released
  bool leaf = false;
  std::weak_ptr<TensorImpl> variable;  // leaf: the tensor whose gradient is accumulated
  int outputs = 1;
  std::vector<std::vector<std::pair<int, TensorHook>>> hooks;  // per output
  bool released = false;
  bool reusable = false;  // keeps nothing that could be freed: passes go through it as often as they like
  // Per output, if any is cut: its spec. Its gradient is cut so before the gradient function sees it.
  std::vector<SpecPtr> placed;
};

struct SumMade;

struct TensorImpl {
  Array local;
  SpecPtr spec;
  Dims sizes;
  bool requires_grad = false;
  std::shared_ptr<Node> grad_fn;  // non-leaf: the producer
  int output = 0;
  std::shared_ptr<Node> accumulator;  // leaf
  std::shared_ptr<LeafState> leaf;    // leaf: gradient and hooks
  std::shared_ptr<SumMade> made;      // what is owed here, once somebody has made the sum (settled)
};

struct LeafState {
  Tensor grad;                                          // may still be Partial
  std::vector<std::pair<int, TensorHook>> hooks;        // before accumulation
  std::function<void(const Tensor& leaf)> accumulated;  // after this backward pass's gradient was added
};

// A reference to a callable that outlives the call (no allocation).
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  FunctionRef() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: meant to convert
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* o, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(o))(std::forward<Args>(args)...);
        }) {}
  explicit operator bool() const { return call_ != nullptr; }
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

// Makes `outputs` the result of one recorded operation, if recording is on and any input requires a gradient.
// The gradient function is only made then; the outputs already carry their node, so SavedTensor::output
// works. `places`: gradients of outputs that are cut are cut so before the function sees them.
void record(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
            FunctionRef<GradFunction()> make_gradient, bool places);
// For gradients that need nothing but the incoming ones.
void record_simple(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                   GradFunction gradient);
bool any_requires_grad(std::span<const Tensor> inputs);
LeafState& leaf_state(const Tensor& leaf);
// The leaf's gradient as it is (perhaps Partial), without communication.
const Tensor& pending_grad(const Tensor& leaf);

// A tensor kept for the backward pass. Unpacking refuses when it was changed in place meanwhile.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& input);
  // An output of the operation being recorded: does not hold its own node (that would be a cycle).
  static SavedTensor output(const Tensor& result);
  bool defined() const { return tensor_.defined(); }
  Tensor unpack(const char* op) const;

 private:
  Tensor tensor_;
  std::uint32_t version_ = 0;
  bool is_output_ = false;
  std::weak_ptr<Node> node_;
  int output_ = 0;
};

// Gradients of several outputs. `inputs` empty: accumulate into leaves; else return d/d(inputs) and touch no
// leaf: what leads to none of them is not worked out, its hooks are not called, and it is not freed.
Tensors run_backward(const Tensors& outputs, const Tensors& grads, const Tensors& inputs,
                     const BackwardOptions& options);
// From inside a backward pass (a hook, LeafState::accumulated): runs `f` once when the outermost pass of this
// thread has ended. `completed` is false if it was left by an exception; `f` must not throw then.
void at_backward_end(std::function<void(bool completed)> f);
// d(sum <grads, outputs>)/d(inputs); an input that is not reached gives an undefined tensor.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grads = {},
             const BackwardOptions& options = {});

// The two pieces of arithmetic that the engine needs. ops/ defines the defaults (so that the linker takes
// them along); the engine itself knows no op.
struct EngineOps {
  Tensor (*add)(const Tensor& a, const Tensor& b) = nullptr;
  Tensor (*ones_like)(const Tensor& t) = nullptr;
};
EngineOps& engine_ops();
EngineOps default_engine_ops();

}  // namespace tessera
