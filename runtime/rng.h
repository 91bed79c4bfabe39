// Random numbers that depend on the seed, the stream and the *global* position only.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a
// counter into 128 random bits; there is no state. Element i of a global tensor takes word i mod 4 of block
// i / 4, so a rank that holds any box of it draws exactly the values that a single rank would, and a dropout
// mask needs no memory: the backward pass draws it again.
//
// Which bits mean what:
//   counter = block | lane << 56, stream;  key = seed. Lane 0 holds the first word of an element, further
//   lanes the low bits of f64 uniforms (lane 1) and the redraws of truncated normals (lane 2 and up).
//   uniform:  f32, bf16 and f16 take the upper 24 bits of the word, f64 its 32 and 21 more from lane 1.
//   normal:   Box-Muller on the words of elements 2j and 2j+1 of a block.
// Everything is worked out in double by multiplications, additions, divisions, square roots and std::fma in a
// fixed order (no library function but the exact ones, no contraction), then rounded to the dtype: equal bits
// for every compiler, flag and vector width.
#pragma once
#include <vector>

#include "runtime/array.h"
#include "runtime/rng_key.h"

namespace tessera {

// The 128 bits of block `block`: Philox4x32-10 of counter (block, stream) and key (seed), low words first.
void philox(RngKey key, std::uint64_t block, std::uint32_t out[4]);

// Single values at global element index `index` (0 to 2^58 - 1).
float uniform_f32(RngKey key, std::int64_t index);   // [0, 1), multiples of 2^-24
double uniform_f64(RngKey key, std::int64_t index);  // [0, 1), multiples of 2^-53, same upper 24 bits
double normal(RngKey key, std::int64_t index);       // mean 0, deviation 1; |value| < 6.7
// False with probability p (to 2^-32).
bool bernoulli_keep(RngKey key, std::int64_t index, double p);

// Where a local array lies in a global tensor. Along each dim the local elements are the global ones of the
// intervals in order (their lengths add up to the local size). Element indices are row-major over
// `global_sizes`, plus `index_offset`.
struct IndexBox {
  Dims global_sizes;
  std::vector<std::vector<Interval>> intervals;  // one list per dim
  std::int64_t index_offset = 0;
};
// All of `sizes`: what a single rank holds.
IndexBox whole_box(const Dims& sizes, std::int64_t index_offset = 0);

// All of them: floating dtypes, any strides, refuse a box that does not fit the array, bump the version of
// `out`, do nothing on the meta device. Every device draws the same bits.

// Uniform in [lo, hi), also after rounding to the dtype; refuses lo >= hi.
void fill_uniform(const Array& out, const IndexBox& box, RngKey key, double lo, double hi);
void fill_normal(const Array& out, const IndexBox& box, RngKey key, double mean, double deviation);
// Normal values outside [lo, hi] are drawn again from the next lane. An interval so far out that 250 draws
// miss it gives the nearer bound.
struct TruncatedNormal {
  double mean = 0;
  double deviation = 1;
  double lo = -2;
  double hi = 2;
};
void fill_truncated_normal(const Array& out, const IndexBox& box, RngKey key, const TruncatedNormal& shape);
// out = x / (1 - p) where kept, else 0; kept with probability 1 - p. The same call on the gradient is the
// backward pass. `out` may be `x`. Same sizes and dtype; 0 <= p <= 1.
void dropout_apply(const Array& out, const Array& x, const IndexBox& box, RngKey key, double p);

}  // namespace tessera
