#include "ops/op.h"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "autograd/adjoints.h"
#include "mesh/mesh_state.h"
#include "runtime/graph_capture.h"
#include "runtime/log.h"
#include "runtime/trace.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxKeyed = 8;

struct Key {
  const OpDef* op = nullptr;
  std::size_t parameters = 0;
  std::array<std::uint64_t, kMaxKeyed> inputs{};  // spec address, or a hash of a plain input's sizes, or 0
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& k) const {
    std::size_t h = reinterpret_cast<std::size_t>(k.op);
    hash_combine(h, k.parameters);
    for (std::uint64_t v : k.inputs) hash_combine(h, v);
    return h;
  }
};
struct Planned {
  std::vector<SpecPtr> given;  // held, so that the addresses in the key stay theirs
  Strategy strategy;
  bool passes_on = false;  // gradients, as they lie
};
struct CallCache {
  std::unordered_map<Key, std::shared_ptr<const Planned>, KeyHash> entries;
};
const int kCallTag = 0;

struct Policy {
  RedistributePolicy policy = RedistributePolicy::Allow;
  std::int64_t threshold = 0;
};
thread_local Policy policy;

struct Handlers {
  std::mutex mutex;
  std::unordered_map<std::string, OpHandler> by_name;
  std::atomic<bool> any{false};
};
Handlers& handlers() {
  static Handlers h;
  return h;
}

std::shared_ptr<const Planned> make_plan(const OpCall& c, const DeviceMesh& mesh) {
  ++mesh.cache()->planned;
  auto planned = std::make_shared<Planned>();
  for (const Tensor& t : c.inputs) {
    SpecPtr s;
    if (t.defined()) s = t.is_sharded() ? t.spec() : ShardSpec::replicated(mesh, t.sizes());
    planned->given.push_back(std::move(s));
  }
  planned->passes_on = c.passes_on;
  if (c.plan) {
    planned->strategy = c.plan(planned->given);
  } else {
    const Rule rule = c.rule();
    const Linearity l = rule.linearity;
    const bool alone = rule.inputs.size() == 1 && (l == Linearity::Each || l == Linearity::First) &&
                       numel_of(c.output_sizes[0]) >= numel_of(c.inputs[0].sizes());
    planned->passes_on = alone || l == Linearity::Joint || l == Linearity::Select;
    RuleProblem problem{&rule, planned->given, {c.output_sizes.begin(), c.output_sizes.end()}, c.windows};
    planned->strategy = resolve(problem);
  }
  return planned;
}

std::shared_ptr<const Planned> plan_of(const OpCall& c, const DeviceMesh& mesh) {
  if (c.inputs.size() > kMaxKeyed) return make_plan(c, mesh);
  Key key;
  key.op = c.op;
  key.parameters = c.parameters;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& t = c.inputs[i];
    if (!t.defined()) continue;
    key.inputs[i] =
        t.is_sharded() ? reinterpret_cast<std::uint64_t>(t.spec().get()) : (t.sizes().hash() << 1U | 1U);
  }
  auto& cache = mesh.cache()->slot<CallCache>(&kCallTag);
  if (auto it = cache.entries.find(key); it != cache.entries.end()) return it->second;
  auto planned = make_plan(c, mesh);
  if (cache.entries.size() >= MeshCache::kMaxEntries) cache.entries.clear();
  cache.entries.emplace(key, planned);
  return planned;
}

void apply_policy(const OpCall& c, std::size_t input, const Tensor& from, const SpecPtr& to) {
  if (policy.policy == RedistributePolicy::Allow || !from.is_sharded()) return;
  const double bytes = redistribute_cost(*from.spec(), *to) * static_cast<double>(size_of(from.dtype()));
  if (bytes <= 0 || bytes < static_cast<double>(policy.threshold)) return;
  const std::string text = fmt::format("input {} must move about {:.0f} bytes from {} to {}", input, bytes,
                                       from.spec()->str(), str(to->placements()));
  if (policy.policy == RedistributePolicy::Refuse) TS_FAIL(Usage, c.op->name, "{} (refused by policy)", text);
  log_warn("{}: {}", c.op->name, text);
}

bool handled(const OpCall& c, Tensors& outputs) {
  Handlers& h = handlers();
  if (!h.any.load(std::memory_order_relaxed)) return false;
  OpHandler f;
  {
    const std::lock_guard lock(h.mutex);
    auto it = h.by_name.find(c.op->name);
    if (it == h.by_name.end()) return false;
    f = it->second;
  }
  return f(*c.op, c.inputs, outputs);
}

void record_call(const OpCall& c, std::span<const Tensor> used, std::span<Tensor> outputs, bool places) {
  if (!c.gradient) return;
  const auto gradient = [&] { return c.gradient(used, outputs); };
  record(c.op->name, used, outputs, gradient, places);
}

// A call in words, for the mode that compares what the ranks do.
std::string said_of(const OpCall& c) {
  std::string text = c.op->name;
  for (const Tensor& t : c.inputs)
    if (t.defined())
      text += fmt::format(" {} {}", name_of(t.dtype()), t.is_sharded() ? t.spec()->str() : t.sizes().str());
  return text;
}

// Undefined arrays, mostly without an allocation.
class SomeArrays {
 public:
  explicit SomeArrays(std::size_t n) : size_(n) {
    if (n > kInline) {
      many_.resize(n);
    } else {
      std::uninitialized_default_construct_n(few(), n);
    }
  }
  ~SomeArrays() {
    if (size_ <= kInline) std::destroy_n(few(), size_);
  }
  SomeArrays(const SomeArrays&) = delete;
  SomeArrays& operator=(const SomeArrays&) = delete;
  std::span<Array> all() {
    return size_ > kInline ? std::span<Array>(many_) : std::span<Array>(few(), size_);
  }

 private:
  static constexpr std::size_t kInline = 8;
  Array* few() { return reinterpret_cast<Array*>(room_.data()); }
  std::size_t size_;
  alignas(Array) std::array<std::byte, kInline * sizeof(Array)> room_;
  std::vector<Array> many_;
};

void run_local(const OpCall& c, std::span<const Tensor> used, std::span<Array> out, const Strategy* plan) {
  if (used.size() == 1 && used[0].defined()) {
    LocalCall local{{&used[0].local(), 1}, out, plan};
    return c.local(local);
  }
  SomeArrays in(used.size());
  const std::span<Array> arrays = in.all();
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i].defined()) arrays[i] = used[i].local();
  LocalCall local{arrays, out, plan};
  c.local(local);
}

Tensors call_plain(const OpCall& c) {
  SomeArrays made(c.output_sizes.size());
  const std::span<Array> out = made.all();
  run_local(c, c.inputs, out, nullptr);
  Tensors outputs;
  outputs.reserve(out.size());
  for (Array& a : out) outputs.emplace_back(std::move(a));
  record_call(c, c.inputs, outputs, false);
  return outputs;
}

Tensor call_plain_one(const OpCall& c) {
  Array out;
  run_local(c, c.inputs, {&out, 1}, nullptr);
  Tensor output(std::move(out));
  record_call(c, c.inputs, {&output, 1}, false);
  return output;
}

// The inputs, those that are not as the plan needs them re-sharded. Mostly that is one.
Tensors moved_inputs(const OpCall& c, const Planned& planned) {
  const auto moves = [&](std::size_t i) {
    return c.inputs[i].defined() && planned.strategy.inputs[i] != planned.given[i];
  };
  std::size_t count = 0;
  std::size_t one = 0;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!moves(i)) continue;
    apply_policy(c, i, c.inputs[i], planned.strategy.inputs[i]);
    ++count;
    one = i;
  }
  if (count == 1) {
    Tensors moved(c.inputs.begin(), c.inputs.end());
    moved[one] = settled(c.inputs[one], planned.given[one], planned.strategy.inputs[one]);
    return moved;
  }
  std::vector<SpecPtr> to(c.inputs.size());
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (moves(i)) to[i] = planned.strategy.inputs[i];
  return settled(c.inputs, to);
}

Tensors call_sharded(const OpCall& c, const DeviceMesh& mesh) {
  Tensors outputs;
  if (handled(c, outputs)) return outputs;
  const CommScope scope(c.op->name);
  if (mesh.comm().checks_calls()) check_same(mesh.comm(), said_of(c));
  const std::shared_ptr<const Planned> planned = plan_of(c, mesh);
  const Strategy& s = planned->strategy;
  Tensors moved;  // only filled when something has to move
  for (std::size_t i = 0; i < c.inputs.size() && moved.empty(); ++i)
    if (c.inputs[i].defined() && s.inputs[i] != planned->given[i]) moved = moved_inputs(c, *planned);
  const std::span<const Tensor> used = moved.empty() ? c.inputs : std::span<const Tensor>(moved);
  SomeArrays made(c.output_sizes.size());
  const std::span<Array> out = made.all();
  run_local(c, used, out, &s);
  outputs.reserve(out.size());
  for (std::size_t o = 0; o < out.size(); ++o) outputs.emplace_back(std::move(out[o]), s.outputs[o]);
  record_call(c, used, outputs, !planned->passes_on);
  return outputs;
}

}  // namespace

void register_op_handler(const std::string& op_name, OpHandler handler) {
  Handlers& h = handlers();
  const std::lock_guard lock(h.mutex);
  h.by_name[op_name] = std::move(handler);
  h.any = true;
}

void remove_op_handler(const std::string& op_name) {
  Handlers& h = handlers();
  const std::lock_guard lock(h.mutex);
  h.by_name.erase(op_name);
  h.any = !h.by_name.empty();
}

void set_redistribute_policy(RedistributePolicy p, std::int64_t threshold_bytes) {
  policy = {p, threshold_bytes};
}

namespace {

void check_one_mesh(const char* op, const Tensor& a, const Tensor& b) {
  if (a.spec()->mesh_core() != b.spec()->mesh_core()) [[unlikely]]
    TS_FAIL(Usage, op,
            "inputs live on different meshes: {} and {}; redistribute(tensor, mesh, placements) moves one",
            a.spec()->mesh().str(), b.spec()->mesh().str());
}

// One kernel sees memory of one device.
void check_one_device(const char* op, const Tensor& a, const Tensor& b) {
  if (a.device() != b.device()) [[unlikely]]
    TS_FAIL(Usage, op, "inputs are on {} and {}, they must be on one device (to(tensor, device) moves one)",
            name_of(a.device()), name_of(b.device()));
}

}  // namespace

DeviceMesh mesh_of(const char* op, std::span<const Tensor> inputs) {
  const Tensor* first = nullptr;
  for (const Tensor& t : inputs) {
    if (!t.defined() || !t.is_sharded()) continue;
    if (first == nullptr) first = &t;
    check_one_mesh(op, *first, t);
  }
  return first != nullptr ? first->spec()->mesh() : DeviceMesh();
}

void check_together(const char* op, std::initializer_list<const Tensor*> inputs) {
  const Tensor* first = nullptr;
  const Tensor* sharded = nullptr;
  for (const Tensor* t : inputs) {
    if (!t->defined()) continue;
    if (first == nullptr) first = t;
    check_one_device(op, *first, *t);
    if (!t->is_sharded()) continue;
    if (sharded == nullptr) sharded = t;
    check_one_mesh(op, *sharded, *t);
  }
}

namespace {

DeviceMesh checked_mesh(const OpCall& c) {
  const Tensor* first = nullptr;
  for (const Tensor& t : c.inputs) {
    if (!t.defined()) continue;
    if (first == nullptr) first = &t;
    check_one_device(c.op->name, *first, t);
  }
  return mesh_of(c.op->name, c.inputs);
}

}  // namespace

std::string given_str(const Tensor& t) {
  return t.defined() ? fmt::format("{} {}", name_of(t.dtype()), t.sizes().str()) : "an undefined tensor";
}

Tensors call(const OpCall& c) {
  const TraceScope trace(c.op->name, "op");
  const OpScope scope(c.op->name);
  const DeviceMesh mesh = checked_mesh(c);
  return mesh.defined() ? call_sharded(c, mesh) : call_plain(c);
}

// Without the list where all are plain.
Tensor call_one(const OpCall& c) {
  const TraceScope trace(c.op->name, "op");
  const OpScope scope(c.op->name);
  const DeviceMesh mesh = checked_mesh(c);
  if (!mesh.defined() && c.output_sizes.size() == 1) return call_plain_one(c);
  return std::move((mesh.defined() ? call_sharded(c, mesh) : call_plain(c)).front());
}

}  // namespace tessera
