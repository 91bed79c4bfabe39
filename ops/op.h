// call(): the one place where rules, exchanges, kernels and the tape meet.
//
//   1. specs + rule -> required placements and output specs (from a cache keyed by specs and parameters), or
//   a refusal on all
//      ranks alike; nothing here depends on values
//   2. inputs that are not as required are redistributed (that is recorded: its gradient moves back)
//   3. the local function runs on the local arrays; it may exchange what the specs say it needs (halos,
//   statistics)
//   4. outputs carry their specs; Partial stays Partial until someone needs the value
//   5. one tape node with a gradient function written with public ops
//
// A plain tensor beside sharded ones counts as Replicate on their mesh. If all are plain, 3 and 5 are all
// there is.
#pragma once
#include "autograd/node.h"
#include "mesh/rule.h"
#include "runtime/error.h"

namespace tessera {

// What the local function sees. It fills `out`.
struct LocalCall {
  std::span<const Array> in;  // local; undefined for absent optional inputs
  std::span<Array> out;
  const Strategy* plan = nullptr;  // null: plain
  const ShardSpec* in_spec(std::size_t i) const { return plan ? plan->inputs[i].get() : nullptr; }
  const ShardSpec* out_spec(std::size_t i) const { return plan ? plan->outputs[i].get() : nullptr; }
  // Local sizes of output i, given its global sizes.
  const Dims& out_sizes(std::size_t i, const Dims& global) const {
    return plan ? plan->outputs[i]->local_sizes() : global;
  }
};

// Identifies an op in caches, logs and errors. One static object per op.
struct OpDef {
  const char* name;
};

// A replacement for what an op does on sharded inputs, registered by name (see register_op_handler). Returns
// false to leave the call to the library.
using OpHandler = std::function<bool(const OpDef& op, std::span<const Tensor> inputs, Tensors& outputs)>;
void register_op_handler(const std::string& op_name, OpHandler handler);
void remove_op_handler(const std::string& op_name);

struct OpCall {
  const OpDef* op = nullptr;
  std::span<const Tensor> inputs = {};      // undefined ones are absent
  std::span<const Dims> output_sizes = {};  // global
  std::size_t parameters = 0;               // hash of everything but shapes that the plan depends on
  // Exactly one of the two, called when the cache does not know the combination. Inputs as specs (null:
  // absent).
  FunctionRef<Rule()> rule = {};
  FunctionRef<Strategy(const std::vector<SpecPtr>&)> plan = {};
  std::map<char, Window> windows = {};  // for rules with ~
  FunctionRef<void(LocalCall&)> local = {};
  // The gradient is the incoming one, taken apart or moved about: it is passed on however it lies, sums that
  // are owed with it. Rules say so themselves that select, are linear in all inputs together, or in one that
  // is no larger than the result. Else the gradient of a result that is cut is cut so first, once for all
  // that reads it.
  bool passes_on = false;
  // Made only when recording: inputs as used (after redistribution) and outputs.
  FunctionRef<GradFunction(std::span<const Tensor> inputs, std::span<const Tensor> outputs)> gradient = {};
};

Tensors call(const OpCall& c);
// The same for one output.
Tensor call_one(const OpCall& c);

// The mesh of the sharded inputs (undefined: all are plain); refuses two unrelated meshes.
DeviceMesh mesh_of(const char* op, std::span<const Tensor> inputs);
// Refuses inputs of several meshes or devices (undefined ones are absent), as call() does: for an operation
// that hands them on to another, in its own name.
void check_together(const char* op, std::initializer_list<const Tensor*> inputs);
// What a refusal says was given: "f32 [2, 3]" or "an undefined tensor".
std::string given_str(const Tensor& t);

// Hash of a parameter list for OpCall::parameters.
class Hash {
 public:
  Hash& add(std::int64_t v) {
    hash_combine(value_, static_cast<std::size_t>(v));
    return *this;
  }
  Hash& add(double v) { return add(std::bit_cast<std::int64_t>(v)); }
  Hash& add(const Dims& d) {
    hash_combine(value_, d.hash());
    return *this;
  }
  operator std::size_t() const { return value_; }  // NOLINT

 private:
  std::size_t value_ = 0x5bd1e995;
};

// Whether an op may move data that the user did not ask to move (re-sharding inputs to fit its rule).
enum class RedistributePolicy : std::uint8_t { Allow, Warn, Refuse };
// Applies to this thread, to moves of at least `threshold_bytes` in all.
void set_redistribute_policy(RedistributePolicy policy, std::int64_t threshold_bytes = 0);

}  // namespace tessera
