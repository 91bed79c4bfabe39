// Registers as values: GCC's vector types at the width of this build.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

constexpr int kVectorBytes = TESSERA_VECTOR_BYTES;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
inline Vector<T> load(const T* p) {
  return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(p);
}
template <class T>
inline void store(T* p, Vector<T> v) {
  *reinterpret_cast<typename VectorOf<T>::unaligned*>(p) = v;
}

typedef std::int32_t Int32Vector __attribute__((vector_size(kVectorBytes)));
typedef std::int64_t Int64Vector __attribute__((vector_size(kVectorBytes)));

// The vector with its lanes moved round by `by` places.
template <int by>
inline Vector<float> rotated(Vector<float> v) {
  Int32Vector index;
  for (int i = 0; i < kWidth<float>; ++i) index[i] = (i + by) % kWidth<float>;
  return __builtin_shuffle(v, index);
}
template <int by>
inline Vector<double> rotated(Vector<double> v) {
  Int64Vector index;
  for (int i = 0; i < kWidth<double>; ++i) index[i] = (i + by) % kWidth<double>;
  return __builtin_shuffle(v, index);
}

// The halves of a and b woven together: a0 b0 a1 b1 ... of the lower or the upper lanes.
template <bool upper, class T>
inline Vector<T> woven(Vector<T> a, Vector<T> b) {
  using Index = std::conditional_t<sizeof(T) == 4, Int32Vector, Int64Vector>;
  constexpr int start = upper ? kWidth<T> / 2 : 0;
  Index index;
  for (int i = 0; i < kWidth<T>; ++i) index[i] = start + i / 2 + (i % 2) * kWidth<T>;
  return __builtin_shuffle(a, b, index);
}

// Sum and maximum over the lanes, halving each time; NaN is not a maximum.
template <class T, int half = kWidth<T> / 2>
inline T sum_of(Vector<T> v) {
  if constexpr (half == 0) {
    return v[0];
  } else {
    return sum_of<T, half / 2>(v + rotated<half>(v));
  }
}
template <class T, int half = kWidth<T> / 2>
inline T max_of(Vector<T> v) {
  if constexpr (half == 0) {
    return v[0];
  } else {
    const Vector<T> r = rotated<half>(v);
    return max_of<T, half / 2>(r > v ? r : v);
  }
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
