#include "emulated/cudnn_graph.h"

#include <algorithm>
#include <limits>
#include <set>

#include "emulated/cudnn_operation.h"
#include "emulated/memory.h"
#include "emulated/tf32.h"

namespace tessera::emulated {
namespace {

std::string read(const Descriptor& d, Operation& op) {
  switch (d.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return read_pointwise(d, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return read_product(d, op);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return read_reduction(d, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return read_view(d, op);
    default:
      return read_convolution(d, op);
  }
}

// In the order in which every input is there before it is read; fewer than the graph has if there is none.
std::vector<Operation> operations_of(const Descriptor& graph) {
  std::vector<Operation> waiting;
  const Attribute* ops = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops == nullptr) return waiting;
  std::map<std::int64_t, bool> made;  // tensors that operations write
  for (const auto& d : ops->children) {
    waiting.emplace_back();
    if (!read(*d, waiting.back()).empty()) return {};
    made[waiting.back().result.uid] = false;
  }
  std::vector<Operation> order;
  for (bool found = true; found;) {
    found = false;
    for (auto op = waiting.begin(); op != waiting.end(); ++op) {
      bool ready = true;
      for (const Tensor& t : op->inputs) {
        const auto at = made.find(t.uid);
        ready = ready && (at == made.end() ? !t.is_virtual : at->second);
      }
      if (!ready) continue;
      made[op->result.uid] = true;
      order.push_back(std::move(*op));
      waiting.erase(op);
      found = true;
      break;
    }
  }
  return order;
}

bool is_half(cudnnDataType_t type) { return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16; }

// The one type of the tensors in the caller's memory, beside which attention has its log-sum-exp in float,
// one number a row: real engines are asked for nothing else.
class TypeOfMemory {
 public:
  explicit TypeOfMemory(const Attribute& ops)
      : attention_(std::any_of(ops.children.begin(), ops.children.end(), [](const auto& d) {
          return d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
        })) {}

  std::string fault_of(const Tensor& t) {
    if (t.is_virtual || t.is_by_value) return {};
    if (attention_ && t.type == CUDNN_DATA_FLOAT && t.size.back() == 1) return {};
    if (attention_ && !is_half(t.type)) return "attention in another type than bf16 and f16";
    types_.insert(t.type);
    return types_.size() == 1 ? "" : "tensors of several types";
  }

 private:
  bool attention_;
  std::set<cudnnDataType_t> types_;
};

// What passes from one operation to an element-wise one keeps the precision of the sum that it is.
std::string fault_of_passing(const Descriptor& d, const Operation& op) {
  if (d.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return {};
  const bool wide = op.result.type == CUDNN_DATA_DOUBLE;
  for (const Tensor& t : op.inputs)
    if (t.is_virtual && (is_half(t.type) || (wide && t.type != CUDNN_DATA_DOUBLE)))
      return "what passes between operations is rounded";
  return {};
}

}  // namespace

std::string fault_of(const Descriptor& graph) {
  const Attribute* ops = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops == nullptr || ops->children.empty()) return "a graph without operations";
  TypeOfMemory memory(*ops);
  for (const auto& d : ops->children) {
    Operation op;
    if (std::string fault = read(*d, op); !fault.empty()) return fault;
    if (std::string fault = fault_of_passing(*d, op); !fault.empty()) return fault;
    op.inputs.push_back(op.result);
    for (const Tensor& t : op.inputs)
      if (std::string fault = memory.fault_of(t); !fault.empty()) return fault;
  }
  if (operations_of(graph).size() != ops->children.size()) return "operations that wait for each other";
  return {};
}

std::string take_operands(const Descriptor& graph, const std::map<std::int64_t, void*>& pointers,
                          Operands& operands) {
  for (const Operation& op : operations_of(graph)) {
    std::vector<Tensor> tensors = op.inputs;
    tensors.push_back(op.result);
    for (const Tensor& t : tensors) {
      if (t.is_virtual) continue;
      const auto at = pointers.find(t.uid);
      if (at == pointers.end() || at->second == nullptr) return "a tensor without an address";
      if (t.is_by_value) {
        operands.numbers[t.uid] = number_at(t, at->second);
        continue;
      }
      if (!is_device_address(at->second)) return "a tensor without an address on the device";
      if (reinterpret_cast<std::uintptr_t>(at->second) % static_cast<std::uintptr_t>(t.alignment) != 0)
        return "an address that is not aligned as promised";
      operands.addresses[t.uid] = at->second;
    }
  }
  return {};
}

void run_graph(const Descriptor& graph, const Operands& operands) {
  std::map<std::int64_t, Values> between;  // results that have no memory
  const auto get = [&](const Tensor& t) {
    if (t.is_by_value) return Values{operands.numbers.at(t.uid)};
    return t.is_virtual ? between[t.uid] : load(t, operands.addresses.at(t.uid));
  };
  for (const Operation& op : operations_of(graph)) {
    std::vector<Values> inputs;
    for (const Tensor& t : op.inputs) {
      inputs.push_back(get(t));
      if (operands.tensor_cores && op.rounds_factors && t.type == CUDNN_DATA_FLOAT)
        round_to_tf32(inputs.back());
    }
    Values result = op.run(inputs);
    if (operands.unwanted) std::fill(result.begin(), result.end(), std::numeric_limits<double>::quiet_NaN());
    if (op.result.is_virtual) {
      round_as(op.result, result);
      between[op.result.uid] = std::move(result);
    } else {
      store(op.result, operands.addresses.at(op.result.uid), result);
    }
  }
}

}  // namespace tessera::emulated
