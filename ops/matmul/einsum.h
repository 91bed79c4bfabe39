// Sums of products by subscripts.
//
// Sharded: a dim that is cut stays cut, whatever its subscript; where a summed subscript is cut the result is
// Partial. Nothing is sent unless two operands cut one subscript differently.
#pragma once
#include <string_view>

#include "autograd/tensor.h"

namespace tessera {

// torch.einsum: "bij,bjk->bik" and everything else that PyTorch's equations say (see ops/matmul/equation.h).
// Operands are multiplied in pairs, in the order that costs least for up to five of them, the cheapest pair
// first for more. At most eight subscripts in an intermediate result.
Tensor einsum(std::string_view equation, const Tensors& operands);

}  // namespace tessera
