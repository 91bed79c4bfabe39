// A call of every public operation that is right, with the inputs it cannot do without: what a refusal
// differs from in one thing. `name` is the operation's in docs/ops.md, `op` what its errors say.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tessera::every_call {

struct InputSize {
  Dims sizes;
  DType dtype = DType::F32;
};
struct EveryCall {
  std::string name;
  std::string op;
  std::vector<InputSize> inputs;
  std::function<void(const Tensors&)> call;
  std::size_t optional = 0;  // so many of the last inputs may be left out
};

// All of them, by family.
std::vector<EveryCall> every_call();
void add_pointwise(std::vector<EveryCall>& list);
void add_reductions(std::vector<EveryCall>& list);
void add_losses(std::vector<EveryCall>& list);
void add_products(std::vector<EveryCall>& list);
void add_windows(std::vector<EveryCall>& list);
void add_shapes(std::vector<EveryCall>& list);
void add_indexing(std::vector<EveryCall>& list);

}  // namespace tessera::every_call
