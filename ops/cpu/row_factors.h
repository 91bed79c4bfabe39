// The factors of a row's product, known so far that the product of all but one can be told by division.
// Shared by kernels of every device.
#pragma once
#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/portable.h"

namespace tessera {

// What cannot be divided out again (zeros, infinities, NaN) is counted: an element has one among its others
// where the row has more than itself. Counts stop at 2, which is all that this asks.
struct RowFactors {
  double product = 1;  // of the rest, and of the signs of infinities
  std::uint8_t zeros = 0, infinities = 0, nans = 0;

  TS_PORTABLE static bool is_infinite(double x) { return x - x != x - x && x == x; }
  TS_PORTABLE static double divisor(double x) {
    if (x == 0 || x != x) return 1;
    if (is_infinite(x)) return x > 0 ? 1 : -1;
    return x;
  }
  TS_PORTABLE static std::uint8_t counted(int n) { return static_cast<std::uint8_t>(n > 2 ? 2 : n); }

  TS_PORTABLE void take(double x) {
    product *= divisor(x);
    zeros = counted(zeros + (x == 0 ? 1 : 0));
    infinities = counted(infinities + (is_infinite(x) ? 1 : 0));
    nans = counted(nans + (x != x ? 1 : 0));
  }
  // The product of all but x, one of them.
  TS_PORTABLE double others(double x) const {
    if (nans > (x != x ? 1 : 0)) return std::numeric_limits<double>::quiet_NaN();
    const double number = zeros > (x == 0 ? 1 : 0) ? 0 : product / divisor(x);
    return infinities > (is_infinite(x) ? 1 : 0) ? number * std::numeric_limits<double>::infinity() : number;
  }
};

// An element of dx as ops/cpu/prod_gradient.h says; `row` counts only where there are zeros.
template <class T>
TS_PORTABLE T prod_slope(const RowFactors& row, std::int64_t zeros, bool whole, T x, T y, T dy) {
  using W = std::conditional_t<sizeof(T) == 8, double, float>;
  if (whole && zeros > 1) return static_cast<T>(W(0));
  const W value = static_cast<W>(x);
  const W slope =
      zeros > 0 ? static_cast<W>(row.others(static_cast<double>(value))) : static_cast<W>(y) / value;
  return static_cast<T>(static_cast<W>(dy) * static_cast<W>(static_cast<T>(slope)));
}

}  // namespace tessera
