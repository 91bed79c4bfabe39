// Powers of integers; one source for every device.
#pragma once
#include <type_traits>

#include "runtime/portable.h"

namespace tessera::cpu {

// By repeated squaring, which wraps as PyTorch's does. A negative exponent gives what the fraction is without
// its digits: 0, but of 1 and -1.
template <class T>
TS_PORTABLE inline T integer_power(T base, T exponent) {
  using U = std::make_unsigned_t<T>;
  if (exponent < 0) {
    if (base == T(1)) return T(1);
    if (base == T(-1)) return exponent % 2 == 0 ? T(1) : T(-1);
    return T(0);
  }
  U result = 1;
  U square = static_cast<U>(base);
  for (U left = static_cast<U>(exponent); left != 0; left >>= 1U) {
    if ((left & 1U) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

}  // namespace tessera::cpu
