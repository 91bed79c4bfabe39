// The subscripts of einsum; internal to ops/.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/shape.h"

namespace tessera {

// One character per dim. Dims under an ellipsis are '0', '1', …, counted so that the last one is the same for
// every operand; their number is that of the longest ellipsis.
struct Equation {
  std::vector<std::string> operands;
  std::string output;
};

// torch.einsum's syntax: letters, spaces anywhere, "..." once per term, repeated letters (diagonals), "->"
// and an output, or without it every letter that appears once, in alphabetical order (capitals first), after
// the dims of the ellipsis. Refuses what PyTorch refuses.
Equation parse_equation(std::string_view text, const std::vector<Dims>& sizes);

}  // namespace tessera
