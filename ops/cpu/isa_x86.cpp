#include "ops/cpu/isa.h"

namespace tessera::cpu {

Isa machine_isa() {
  static const Isa isa = [] {
    __builtin_cpu_init();
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::Avx512 : avx2 ? Isa::Avx2 : Isa::Baseline;
  }();
  return isa;
}

}  // namespace tessera::cpu
