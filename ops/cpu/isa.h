// Instruction sets: which build of the vector kernels runs.
//
// Every file in simd/ is compiled once per instruction set, in a namespace of its own, and fills a table of
// function pointers. Those files see no inline function of the rest of the library: the linker
// keeps one copy of such a function, and it must not be the copy with instructions that the machine lacks.
#pragma once
#include <cstdint>

namespace tessera::cpu {

enum class Isa : std::uint8_t { Baseline, Avx2, Avx512 };
const char* name_of(Isa isa);

// What the machine can do.
Isa machine_isa();
// What runs: the machine's best, capped by the environment variable TESSERA_ISA=baseline|avx2|avx512.
Isa active_isa();
// Switches at run time, for tests and measurements; more than the machine has is cut down to it. oneDNN keeps
// the limit that held at its first use.
void set_active_isa(Isa isa);

}  // namespace tessera::cpu

// Declares the three builds of `function`, which returns a const Table&, and the one that chooses.
#define TESSERA_ISA_TABLE(Table, function) \
  namespace isa_baseline {                 \
  const Table& function();                 \
  }                                        \
  namespace isa_avx2 {                     \
  const Table& function();                 \
  }                                        \
  namespace isa_avx512 {                   \
  const Table& function();                 \
  }                                        \
  static inline const Table& function() {  \
    switch (active_isa()) {                \
      case Isa::Avx512:                    \
        return isa_avx512::function();     \
      case Isa::Avx2:                      \
        return isa_avx2::function();       \
      default:                             \
        return isa_baseline::function();   \
    }                                      \
  }
