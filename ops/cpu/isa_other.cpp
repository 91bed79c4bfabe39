#include "ops/cpu/isa.h"

namespace tessera::cpu {

// Processors other than x86: the compiler's default instruction set is the only one.
Isa machine_isa() { return Isa::Baseline; }

}  // namespace tessera::cpu
