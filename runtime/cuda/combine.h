// Two values made one: what reductions and the sums of ranks share on the device.
#pragma once
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

enum class Combine : std::uint8_t { Sum, Max, Min, Product };

// NaN wins; integers wrap; of bools a sum is "or" and a product "and".
template <class A>
TS_DEVICE A combined(Combine op, A a, A b) {
  if (op == Combine::Max) return a > b || a != a ? a : b;
  if (op == Combine::Min) return a < b || a != a ? a : b;
  if constexpr (std::is_same_v<A, bool>) {
    return op == Combine::Sum ? a || b : a && b;
  } else if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    const auto x = static_cast<U>(a);
    const auto y = static_cast<U>(b);
    return static_cast<A>(op == Combine::Sum ? x + y : x * y);
  } else {
    return op == Combine::Sum ? a + b : a * b;
  }
}

}  // namespace tessera::cuda
