#pragma once
#include <cstdint>

namespace tessera::cpu {

// What is done to the normalised values at once.
enum class NormActivation : std::uint8_t { None, Relu, Silu, Gelu, GeluTanh };

}  // namespace tessera::cpu
