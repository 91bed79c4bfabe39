// What the CPU and the device must judge alike in norms: what is added to a variance before its root is
// taken, and which means have too few digits.
#pragma once
#include <cstdint>
#include <limits>

#include "runtime/portable.h"

namespace tessera::cpu {

struct NormEps {
  double value = 1e-5;
  // Of a statistic whose elements are all equal, without an eps: its normalised elements are 0 and have no
  // gradient (instance norm), instead of being 0 / 0.
  bool flat_to_zero = false;
  TS_PORTABLE NormEps(double eps = 1e-5, bool to_zero = false) : value(eps), flat_to_zero(to_zero) {}

  // A row's variance and eps, or infinity where its normalised elements shall be 0. stats: statistics of T
  // [4, rows] as channel_norm.h has them. Squared deviations of less than a single element leaves that
  // differs from the others by its last bit are the rounding of the sums, which depends on how the elements
  // are cut.
  template <class T, class Pointer>
  TS_PORTABLE double beside_variance(Pointer stats, std::int64_t rows, std::int64_t row) const {
    const double variance = static_cast<double>(stats[2 * rows + row]);
    if (!flat_to_zero || value != 0) return variance + value;
    const double least = 0.25 * std::numeric_limits<T>::epsilon() * static_cast<double>(stats[row]);
    const bool flat = variance * static_cast<double>(stats[3 * rows + row]) <= least * least;
    return flat ? std::numeric_limits<double>::infinity() : variance;
  }
};

// Whether a mean as a number of its type, off by up to half of its last digit, is off by more than a few
// roundings of a deviation, so that backward passes correct it.
template <class T>
TS_PORTABLE bool mean_is_rough(T mean, T rstd) {
  constexpr T kFar = 8;
  return (mean < T(0) ? -mean : mean) * rstd > kFar;
}

}  // namespace tessera::cpu
