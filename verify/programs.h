// The operations that a case may name, each a call of the library's public function.
#pragma once
#include <map>
#include <set>
#include <string>

#include "autograd/tensor.h"
#include "verify/case.h"

namespace tessera::verify {

// The operations that the library has.
std::set<std::string> op_names();
// Whether the library has the operation at all.
bool has_op(const std::string& op);

// One operation on inputs (an undefined tensor: left out) with the arguments of FORMAT's table. Refuses, with
// kind Unsupported, an operation or a mode that the library lacks; and, with kind Usage, a missing input or
// an argument that is missing or of the wrong kind.
Tensors apply_op(const std::string& op, const Tensors& inputs, const nlohmann::json& args);

// All steps in order; `values` holds the leaves by name and receives what the steps make.
void run_program(const Case& c, std::map<std::string, Tensor>& values);

}  // namespace tessera::verify
