// What backward sends where the gradient of a result is not placed as the result is. Internal to
// verify/ops_table*.cpp.
#pragma once
#include "verify/ops_table_run.h"

namespace tessera::verify {

// The section of the document. Runs every call with every input alone in every placement (and what its entry
// asks for), given gradients in every placement; refuses what sends more than the section says. Collective.
std::string gradients_section(const DeviceMesh& mesh);

}  // namespace tessera::verify
