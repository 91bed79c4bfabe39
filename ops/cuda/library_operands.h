// Operands at the addresses that plans of cuDNN are made for, and at which cuBLASLt's epilogues load a bias,
// whatever the heuristic is told of the matrices. Host side.
#pragma once
#include <cstdint>

#include "runtime/array.h"

namespace tessera::cuda {

constexpr std::int64_t kLibraryAlignment = 16;  // bytes

// A part of an array, dense as it may be, can begin anywhere.
inline bool is_library_aligned(const Array& a) {
  return reinterpret_cast<std::uintptr_t>(a.raw()) % static_cast<std::uintptr_t>(kLibraryAlignment) == 0;
}
// The same elements one after another at such an address; undefined stays undefined.
inline Array dense_for_library(const Array& a) {
  if (!a.defined()) return a;
  return is_library_aligned(a) ? a.contiguous() : a.clone();
}

}  // namespace tessera::cuda
