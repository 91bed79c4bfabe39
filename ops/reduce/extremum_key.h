// Integers that order as the values of any element type do (see extremum_index.h), for kernels of every
// device.
#pragma once
#include <bit>
#include <limits>
#include <type_traits>

#include "runtime/dtype.h"
#include "runtime/portable.h"

namespace tessera {

// A signed integer as wide as the type's values, at least four bytes.
template <class T>
using ExtremumKey = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

// Equal values, and the two zeros, have equal keys.
template <class T>
TS_PORTABLE inline std::int64_t extremum_key(T value, bool largest) {
  using Key = ExtremumKey<T>;
  constexpr Key kHighest = std::numeric_limits<Key>::max();
  Key key = 0;
  if constexpr (is_floating(dtype_of<T>())) {
    using F = std::conditional_t<sizeof(T) == 8, double, float>;
    const F v = static_cast<F>(value) + F(0);
    if (v != v) return kHighest;
    const auto bits = std::bit_cast<Key>(v);
    key = bits < 0 ? bits ^ kHighest : bits;
  } else {
    key = static_cast<Key>(value);
  }
  return largest ? key : ~key;
}

struct ExtremumCandidate {
  std::int64_t key = 0;
  std::int64_t index = 0;
  TS_PORTABLE void meet(std::int64_t other_key, std::int64_t other_index) {
    const bool better = other_key > key || (other_key == key && other_index < index);
    key = better ? other_key : key;
    index = better ? other_index : index;
  }
};

}  // namespace tessera
