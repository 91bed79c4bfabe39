#pragma once
#include <cstdint>

namespace tessera::cpu {

// What a norm, a linear layer or a convolution does to its results at once.
enum class Activation : std::uint8_t { None, Relu, Silu, Gelu, GeluTanh };
using NormActivation = Activation;

}  // namespace tessera::cpu
