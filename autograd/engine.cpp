// The engine: nodes in descending order of creation, leaves as soon as they are complete.
//
// A node is always younger than the producers of its inputs, so taking the youngest first meets every
// consumer before its producer. The order is the same on every rank, and no node is left out because a shard
// is empty: a collective may be inside. Left out is what leads to none of the inputs that a pass was asked
// for, which every rank knows from the graph alone.
#include <algorithm>
#include <atomic>
#include <queue>
#include <unordered_map>
#include <utility>

#include "autograd/adjoints.h"
#include "autograd/gradient_place.h"
#include "autograd/node.h"
#include "runtime/copy.h"
#include "runtime/error.h"
#include "runtime/progress.h"
#include "runtime/trace.h"

namespace tessera {
namespace {

// One for all threads: what one computes from another's results is younger than they are.
std::atomic<std::uint64_t> sequence_counter{0};

class Pass {
 public:
  Pass(const Tensors& inputs, const BackwardOptions& options) : options_(options) {
    for (const Tensor& t : inputs) {
      const Edge e = edge_of(t);
      TS_CHECK(e.node != nullptr, "grad", "an input does not require a gradient");
      states_[e.node.get()].wanted = true;
      wanted_.push_back(e);
    }
    results_.resize(inputs.size());
  }

  static Edge edge_of(const Tensor& t) {
    if (!t.requires_grad()) return {};
    return t.is_leaf() ? Edge{t.impl()->accumulator, 0} : Edge{t.grad_fn(), t.impl()->output};
  }

  void seed(const Tensor& output, const Tensor& given) {
    TS_CHECK(output.requires_grad(), "backward", "the tensor does not require a gradient and has no history");
    const Edge e = edge_of(output);
    const bool reaches = discover(e.node.get());
    Tensor g = given;
    if (!g.defined()) {
      TS_CHECK(output.numel() == 1, "backward",
               "a gradient must be given for a tensor of sizes {} (not one element)", output.sizes().str());
      g = engine_ops().ones_like(output);
    }
    TS_CHECK(g.dtype() == output.dtype(), "backward", "the gradient is {}, the tensor {}", name_of(g.dtype()),
             name_of(output.dtype()));
    TS_CHECK(g.sizes() == output.sizes(), "backward", "the gradient has sizes {}, the tensor {}",
             g.sizes().str(), output.sizes().str());
    if (!reaches) return;
    // A plain gradient of a sharded tensor is cut like it, which moves nothing: else every rank would work on
    // the whole.
    if (output.is_sharded())
      g = g.is_sharded() ? on_mesh_of(output.spec(), g) : redistribute(g, without_partial(*output.spec()));
    add(e, std::move(g));
    roots_.push_back(e.node);
  }

  Tensors run() {
    for (const std::shared_ptr<Node>& r : roots_) push(r);
    while (!ready_leaves_.empty() || !queue_.empty()) {
      std::shared_ptr<Node> node;
      if (!ready_leaves_.empty()) {
        node = std::move(ready_leaves_.back());
        ready_leaves_.pop_back();
      } else {
        node = queue_.top();
        queue_.pop();
      }
      visit(node);
      poll_progress();
    }
    return std::move(results_);
  }

 private:
  struct Younger {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence < b->sequence;
    }
  };

  // What a pass knows of a node.
  struct State {
    bool seen = false;
    bool pushed = false;
    bool wanted = false;  // the producer of an input that was asked for
    bool leads = false;   // an edge leads to one
    bool strays = false;  // another edge leads to none
    int waiting = 0;      // consumers that have not been visited
    Tensors slots;        // gradients of its outputs, as far as they have arrived
  };

  // Whether a gradient of it is of any use. Without inputs all leaves are meant.
  bool reaches(const State& s) const { return wanted_.empty() || s.wanted || s.leads; }

  void note_edge(State& from, const State& to) const { (reaches(to) ? from.leads : from.strays) = true; }

  // Counts how many reachable consumers each node has, and tells whether the root leads to what was asked
  // for: producers first, and by a loop, for graphs may be very long.
  bool discover(Node* root) {
    struct Step {
      const Node& node;
      State& state;
      std::size_t next = 0;  // of its edges
    };
    State& first = states_[root];
    std::vector<Step> path;
    if (!std::exchange(first.seen, true)) path.push_back({*root, first});
    while (!path.empty()) {
      Step& at = path.back();
      if (at.next == at.node.edges.size()) {
        const State& done = at.state;
        path.pop_back();
        if (!path.empty()) note_edge(path.back().state, done);
        continue;
      }
      const Node* below = at.node.edges[at.next++].node.get();
      if (below == nullptr) continue;
      State& state = states_[below];
      ++state.waiting;
      if (std::exchange(state.seen, true)) {
        note_edge(at.state, state);
      } else {
        path.push_back({*below, state});
      }
    }
    return reaches(first);
  }

  // A node's edges that gradients are asked of, the others as those that want none.
  std::vector<Edge> asked(const Node& node) {
    std::vector<Edge> edges = node.edges;
    for (Edge& e : edges)
      if (e.node && !reaches(states_[e.node.get()])) e = {};
    return edges;
  }

  // A leaf not before everything that adds to its gradient has been visited.
  void push(const std::shared_ptr<Node>& node) {
    State& state = states_[node.get()];
    if (state.pushed || (node->leaf && state.waiting > 0)) return;
    state.pushed = true;
    if (node->leaf) {
      ready_leaves_.push_back(node);
    } else {
      queue_.push(node);
    }
  }

  // Nobody else can see its memory, and no tape knows it: it may be written to.
  static bool is_sole(const Tensor& t) {
    const Array& a = t.local();
    return t.impl().use_count() == 1 && a.storage().use_count() == 1 && a.storage()->from_allocator() &&
           a.is_dense() && !t.requires_grad();
  }

  // Whether adding the parts of the ranks adds the tensors: not where maxima or products of them are owed.
  static bool adds_up(const Tensor& t) {
    if (!t.is_sharded() || !t.spec()->has_partial()) return true;
    const Placements& p = t.spec()->placements();
    return std::all_of(p.begin(), p.end(),
                       [](const Placement& q) { return !q.is_partial() || q.op == ReduceOp::Sum; });
  }

  // Both are given up: the sum lies in the memory of one of them where nobody else sees that.
  Tensor sum_of(Tensor&& a, Tensor&& b) const {
    // Who else sees memory is a rank's own affair: where calls are compared, all ranks make the same ones.
    const bool compared = a.is_sharded() && a.spec()->mesh().comm().checks_calls();
    const bool in_place =
        !options_.create_graph && !compared && a.spec() == b.spec() && a.dtype() == b.dtype() && adds_up(a);
    if (in_place && is_sole(a)) {
      add_into(a.local(), b.local());
      a.bump_version();
      return std::move(a);
    }
    if (in_place && is_sole(b)) {
      add_into(b.local(), a.local());
      b.bump_version();
      return std::move(b);
    }
    // A plain tensor may be used beside tensors of two meshes: what comes second follows the first.
    return engine_ops().add(a, a.is_sharded() ? on_mesh_of(a.spec(), b) : b);
  }

  void add(const Edge& e, Tensor&& g) {
    Tensors& slots = states_[e.node.get()].slots;
    slots.resize(static_cast<std::size_t>(e.node->outputs));
    Tensor& sum = slots[static_cast<std::size_t>(e.output)];
    sum = sum.defined() ? sum_of(std::move(sum), std::move(g)) : std::move(g);
  }

  void capture(const Node& node, const Tensors& slots) {
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (wanted_[i].node.get() == &node) results_[i] = slots[static_cast<std::size_t>(wanted_[i].output)];
  }

  bool frees() const { return !options_.retain_graph && !options_.create_graph; }

  void visit(const std::shared_ptr<Node>& node) {
    State& state = states_[node.get()];
    Tensors grads = std::move(state.slots);
    grads.resize(static_cast<std::size_t>(node->outputs));
    run_hooks(*node, grads);
    if (state.wanted) capture(*node, grads);
    if (node->leaf) {
      if (wanted_.empty()) accumulate_leaf(*node, std::move(grads[0]));
      return;
    }
    if (!wanted_.empty() && !state.leads) return;
    const std::vector<Edge> some = state.strays ? asked(*node) : std::vector<Edge>();
    const std::vector<Edge>& edges = state.strays ? some : node->edges;
    const bool any = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
    Tensors next;
    if (any) {
      TS_CHECK(!node->released, node->name,
               "backward a second time through a graph that was freed (use retain_graph the first time)");
      const TraceScope trace(node->name, "backward");
      put_on_one_mesh(grads);
      for (std::size_t o = 0; o < node->placed.size(); ++o) grads[o] = placed_as(grads[o], node->placed[o]);
      next = node->gradient(BackwardContext(edges, frees()), grads);
    }
    grads.clear();  // before sums are made: what was passed through may be added to in place
    next.resize(edges.size());
    for (std::size_t i = 0; i < next.size(); ++i) pass_on(edges[i], std::move(next[i]));
    if (any && frees() && !node->reusable) {
      node->gradient = nullptr;
      node->released = true;
    }
  }

  void pass_on(const Edge& e, Tensor&& g) {
    if (!e.node) return;
    if (g.defined()) add(e, std::move(g));
    --states_[e.node.get()].waiting;
    push(e.node);
  }

  void run_hooks(Node& node, Tensors& grads) {
    // A copy of the list: a hook may remove itself.
    auto apply = [&node](const std::vector<std::pair<int, TensorHook>> hooks, Tensor& grad) {
      for (const auto& [id, hook] : hooks) {
        if (!grad.defined()) return;
        if (Tensor given = hook(grad); given.defined()) grad = in_place_of(grad, given, node.name);
      }
    };
    if (node.leaf) {
      if (auto v = node.variable.lock()) apply(v->leaf->hooks, grads[0]);
      return;
    }
    for (std::size_t o = 0; o < node.hooks.size(); ++o) apply(node.hooks[o], grads[o]);
  }

  void accumulate_leaf(const Node& node, Tensor g) {
    auto v = node.variable.lock();
    if (!v) return;
    if (g.defined()) {
      if (!options_.create_graph) g = g.detach();
      Tensor& sum = v->leaf->grad;
      sum = sum.defined() ? sum_of(std::move(sum), std::move(g)) : std::move(g);
    }
    if (v->leaf->accumulated) v->leaf->accumulated(Tensor(v));
  }

  BackwardOptions options_;
  std::vector<Edge> wanted_;
  Tensors results_;
  std::vector<std::shared_ptr<Node>> roots_;
  std::unordered_map<const Node*, State> states_;
  std::vector<std::shared_ptr<Node>> ready_leaves_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Younger> queue_;
};

// Who wants to know when the outermost pass of this thread ends.
thread_local int passes_under_way = 0;
thread_local std::vector<std::function<void(bool)>> end_functions;

class PassScope {
 public:
  PassScope() { ++passes_under_way; }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;
  void finish() {
    if (passes_under_way == 1) notify(true);
  }
  ~PassScope() {
    if (passes_under_way == 1) notify(false);  // left by an exception, if anybody is still waiting
    --passes_under_way;
  }

 private:
  static void notify(bool completed) {
    for (const auto& f : std::exchange(end_functions, {})) f(completed);
  }
};

}  // namespace

void at_backward_end(std::function<void(bool completed)> f) {
  TS_CHECK(passes_under_way > 0, "at_backward_end", "no backward pass is under way on this thread");
  end_functions.push_back(std::move(f));
}

EngineOps& engine_ops() {
  static EngineOps ops = default_engine_ops();
  return ops;
}

void record_simple(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                   GradFunction gradient) {
  record(
      name, inputs, outputs, [&] { return std::move(gradient); }, false);
}

void record(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
            FunctionRef<GradFunction()> make_gradient, bool places) {
  if (!grad_enabled() || !any_requires_grad(inputs)) return;
  auto node = std::make_shared<Node>(name, sequence_counter.fetch_add(1, std::memory_order_relaxed) + 1);
  node->edges.reserve(inputs.size());
  for (const Tensor& t : inputs) node->edges.push_back(Pass::edge_of(t));
  node->outputs = static_cast<int>(outputs.size());
  int index = 0;
  for (Tensor& out : outputs) {
    if (places && out.is_sharded() && out.spec()->is_cut()) {
      node->placed.resize(outputs.size());
      node->placed[static_cast<std::size_t>(index)] = out.spec();
    }
    out.impl()->output = index++;
    if (!is_floating(out.dtype())) continue;
    out.impl()->requires_grad = true;
    out.impl()->grad_fn = node;
  }
  node->gradient = make_gradient();
}

Tensors run_backward(const Tensors& outputs, const Tensors& grads, const Tensors& inputs,
                     const BackwardOptions& options) {
  TS_CHECK(grads.empty() || grads.size() == outputs.size(), "backward", "{} gradients given for {} tensors",
           grads.size(), outputs.size());
  const GradMode mode(options.create_graph);
  PassScope scope;
  Tensors results;
  {
    Pass pass(inputs, options);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      pass.seed(outputs[i], grads.empty() ? Tensor() : grads[i]);
    results = pass.run();
  }
  scope.finish();
  return results;
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grads,
             const BackwardOptions& options) {
  return run_backward(outputs, grads, inputs, options);
}

}  // namespace tessera
