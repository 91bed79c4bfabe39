// What a stream of random numbers is drawn from (runtime/rng.h).
#pragma once
#include <cstdint>

namespace tessera {

struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  // In a graph that is captured: a number in the device's memory that is added to the stream.
  const std::uint64_t* drawn = nullptr;
};

// The functions of rng.h that fill arrays.
enum class RandomKind : std::uint8_t { Uniform, Normal, TruncatedNormal, Dropout };

}  // namespace tessera
