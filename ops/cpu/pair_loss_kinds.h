// The losses of two numbers, by name; also read by the vector kernels, which see nothing else of the library.
#pragma once
#include <cstdint>

namespace tessera::cpu {

// x: prediction, t: target, d = x - t.
enum class PairLoss : std::uint8_t {
  Square,         // d²
  Absolute,       // |d|
  SmoothL1,       // d² / (2 alpha) where |d| < alpha, else |d| - alpha / 2
  Huber,          // d² / 2 where |d| < alpha, else alpha (|d| - alpha / 2)
  Likelihood,     // -t x, of x = log of a probability
  Entropy,        // -(t log x + (1 - t) log(1 - x)), logarithms not below -100
  LogitEntropy,   // the same of sigmoid(x); positive targets weighted by p
  Divergence,     // t (log t - x)
  LogDivergence,  // exp(t) (t - x)
  kCount
};
// The loss, or its derivative by x or by t.
enum class PairPart : std::uint8_t { Value, ByInput, ByTarget, kCount };

}  // namespace tessera::cpu
