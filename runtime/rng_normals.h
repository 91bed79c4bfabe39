// Normal values by registers of numbers; rng_normals.cpp is compiled once for each of these.
#pragma once
#include <cstdint>

namespace tessera::detail {

// What a standard normal value z becomes: fma(deviation, z, mean).
struct NormalScale {
  double mean, deviation;
};

namespace isa_avx2 {
void normals(const std::uint32_t* words, std::int64_t pairs, NormalScale scale, double* values);
}
namespace isa_avx512 {
void normals(const std::uint32_t* words, std::int64_t pairs, NormalScale scale, double* values);
}

}  // namespace tessera::detail
