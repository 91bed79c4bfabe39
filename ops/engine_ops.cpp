// The arithmetic that the autograd engine needs, handed to it when the library is loaded.
#include "autograd/node.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"

namespace tessera {
namespace {

Tensor add_two(const Tensor& a, const Tensor& b) { return add(a, b); }

}  // namespace

EngineOps default_engine_ops() { return {&add_two, &ones_like}; }

}  // namespace tessera
