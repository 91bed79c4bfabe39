// Values as unsigned integers in the same order: NaN greater than everything, zeros of both signs equal. One
// source for every device.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "runtime/dtype.h"
#include "runtime/portable.h"

namespace tessera::cpu {

template <class T>
using OrderKey = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class F>
TS_PORTABLE inline OrderKey<F> float_order_key(F v) {
  using K = OrderKey<F>;
  if (v != v) return static_cast<K>(~K{0});
  constexpr K kSign = K{1} << (8 * sizeof(K) - 1);
  const K bits = std::bit_cast<K>(v == 0 ? F{0} : v);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

template <class T>
TS_PORTABLE inline OrderKey<T> order_key(T v, bool descending) {
  using K = OrderKey<T>;
  K key = 0;
  if constexpr (kHalf<T>) {
    key = float_order_key(static_cast<float>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    key = float_order_key(v);
  } else {
    key = static_cast<K>(v) + (K{1} << (8 * sizeof(K) - 1));  // two's complement: negative ones first
  }
  return descending ? ~key : key;
}

}  // namespace tessera::cpu
