// Values of all element types on the device: how they are loaded, converted and stored. The same rules as on
// the CPU (runtime/copy.cpp): to bool is `!= 0`, to integers towards zero, to bf16 and f16 to nearest even by
// way of float.
#pragma once
#include <type_traits>

#include "runtime/cuda/kernel_context.h"
#include "runtime/dtype.h"

namespace tessera::cuda {

// A byte of a wrapped bool array may hold any value.
template <class S>
TS_DEVICE auto load(const S& value) {
  if constexpr (std::is_same_v<S, bool>) {
    return *reinterpret_cast<const unsigned char*>(&value) != 0;
  } else if constexpr (kHalf<S>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

// What arithmetic is done in.
template <class T>
using Wide = std::conditional_t<kHalf<T>, float, T>;

// Beyond the range of integers a CPU gives the lowest number, a GPU the nearest: one answer for both.
template <class D, class S>
TS_DEVICE D to_integer(S value) {
  constexpr S kEnd = sizeof(D) == 8 ? static_cast<S>(9223372036854775808.0) : static_cast<S>(2147483648.0);
  constexpr D kLowest =
      sizeof(D) == 8 ? static_cast<D>(-9223372036854775807LL - 1) : static_cast<D>(-2147483647LL - 1);
  return value >= -kEnd && value < kEnd ? static_cast<D>(value) : kLowest;
}

template <class D, class S>
TS_DEVICE D convert(const S& source) {
  const auto value = load(source);
  using V = std::remove_const_t<decltype(value)>;
  if constexpr (std::is_same_v<D, bool>) {
    return value != 0;
  } else if constexpr (kHalf<D>) {
    return D(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<V>) {
    return to_integer<D>(value);
  } else {
    return static_cast<D>(value);
  }
}

}  // namespace tessera::cuda
