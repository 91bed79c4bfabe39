// Blocks of f16 on machines without instructions for it.
#include "ops/cpu/simd/half.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

void block_from_f16(float* out, const std::uint16_t* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_f16(x[i]);
}
void block_to_f16(std::uint16_t* out, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_f16(x[i]);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
