// What tests of the engine begin with.
#pragma once
#include "autograd/node.h"
#include "ops/ops.h"

namespace tessera::autograd_cases {

using Values = std::vector<double>;

inline Tensor leaf(const Values& values) {
  Tensor t = tensor(values, {static_cast<std::int64_t>(values.size())}, DType::F64);
  t.set_requires_grad();
  return t;
}
inline BackwardOptions retain() { return {.retain_graph = true}; }
inline BackwardOptions create() { return {.create_graph = true}; }

}  // namespace tessera::autograd_cases
