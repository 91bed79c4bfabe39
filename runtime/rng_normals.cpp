// Normal values, a register of pairs at a time: operation for operation what box_muller (rng_math.h) makes of
// one pair, so the same bits. Compiled once per instruction set, in a namespace of its own; it sees no inline
// function of the rest of the library, of which the linker might keep a copy with instructions that a machine
// lacks.
#include "runtime/rng_normals.h"

#include "runtime/rng_series.h"

namespace tessera::detail::TESSERA_ISA_NAMESPACE {
namespace {

constexpr int kPairs = TESSERA_VECTOR_BYTES / 8;
typedef double Doubles __attribute__((vector_size(TESSERA_VECTOR_BYTES)));
typedef std::uint64_t Words __attribute__((vector_size(TESSERA_VECTOR_BYTES)));
typedef std::int64_t Integers __attribute__((vector_size(TESSERA_VECTOR_BYTES)));

// Lane by lane, which the compiler makes one instruction of.
struct Fused {
  Doubles operator()(Doubles a, Doubles b, Doubles c) const {
    for (int i = 0; i < kPairs; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
  }
};
inline Doubles root(Doubles x) {
  for (int i = 0; i < kPairs; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
}

inline Doubles as_doubles(Words bits) { return reinterpret_cast<Doubles>(bits); }
inline Words as_words(Doubles x) { return reinterpret_cast<Words>(x); }

constexpr std::uint64_t kTwoTo52 = 0x4330000000000000ULL;  // the double 2^52, whose last bit counts ones
// Numbers below 2^32, and numbers of 32 bits with a sign in the lower halves; both exactly.
inline Doubles from_unsigned(Words x) { return as_doubles(x | kTwoTo52) - 0x1p52; }
inline Doubles from_signed(Words x) {
  return as_doubles(((x & 0xFFFFFFFFU) ^ 0x80000000U) | kTwoTo52) - (0x1p52 + 0x1p31);
}

// log_exact.
inline Doubles logarithm(Doubles x) {
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDULL;
  const Words bits = as_words(x);
  const Words e = reinterpret_cast<Words>(reinterpret_cast<Integers>(bits - kSqrtHalf) >> 52);
  const Doubles m = as_doubles(bits - (e << 52));
  const Doubles s = (m - 1.0) / (m + 1.0);
  const Doubles s2 = s * s;
  const Doubles p = log_series(s2, Fused{});
  const Doubles twice = s + s;
  const Doubles ln_m = Fused{}(twice * s2, p, twice);
  return Fused{}(from_signed(e), Doubles{} + 0x1.62e42fefa39efp-1, ln_m);
}

// box_muller, sincos_turns within.
inline void pairs_of(Words words, NormalScale scale, double* values) {
  const Words angle = words >> 32;
  const Doubles u = (from_unsigned(words & 0xFFFFFFFFU) + 1.0) * 0x1p-32;
  const Doubles radius = root(-2.0 * logarithm(u));
  const Words quadrant = ((angle + 0x20000000U) & 0xFFFFFFFFU) >> 30;
  const Doubles x = from_signed(angle - (quadrant << 30)) * (0x1.921fb54442d18p+2 * 0x1p-32);
  const Doubles x2 = x * x;
  const Doubles s = sine_series(x, x2, Fused{});
  const Doubles c = cosine_series(x2, Fused{});
  const auto odd = (quadrant & 1U) != 0;
  // Sign bits.
  const Words cos_sign = ((quadrant + 1U) & 2U) << 62;
  const Words sin_sign = (quadrant & 2U) << 62;
  const Doubles cosine = as_doubles(as_words(odd ? s : c) ^ cos_sign);
  const Doubles sine = as_doubles(as_words(odd ? c : s) ^ sin_sign);
  const Doubles deviation = Doubles{} + scale.deviation;
  const Doubles mean = Doubles{} + scale.mean;
  const Doubles first = Fused{}(deviation, radius * cosine, mean);
  const Doubles second = Fused{}(deviation, radius * sine, mean);
  for (int i = 0; i < kPairs; ++i) {
    values[2 * i] = first[i];
    values[2 * i + 1] = second[i];
  }
}

}  // namespace

void normals(const std::uint32_t* words, std::int64_t pairs, NormalScale scale, double* values) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Words));
  Words block;
  std::int64_t i = 0;
  for (; i + kPairs <= pairs; i += kPairs) {
    __builtin_memcpy(&block, words + 2 * i, kBytes);
    pairs_of(block, scale, values + 2 * i);
  }
  if (i == pairs) return;
  double rest[2 * kPairs];
  block = Words{};
  __builtin_memcpy(&block, words + 2 * i, static_cast<std::size_t>(8 * (pairs - i)));
  pairs_of(block, scale, rest);
  __builtin_memcpy(values + 2 * i, rest, static_cast<std::size_t>(16 * (pairs - i)));
}

}  // namespace tessera::detail::TESSERA_ISA_NAMESPACE
