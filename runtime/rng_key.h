// What a stream of random numbers is drawn from (runtime/rng.h).
#pragma once
#include <cstdint>

namespace tessera {

struct RngKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
};

}  // namespace tessera
