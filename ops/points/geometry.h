// Distances between points and boxes, as every kernel of this folder computes them.
//
// The distance of two points is defined to the last bit: sqrt of the sum of (a_d - b_d)² in the order of the
// dims, every operation rounded once in the type of the coordinates (no fused multiply-add: see the flags in
// ops/CMakeLists.txt). Subtraction, square, sum and root are all monotone after rounding too, so the same
// chain applied to the gaps between two boxes never exceeds the computed distance of any two points in them,
// and applied to their far corners never falls below it. Bounds need no tolerance: what they leave out cannot
// be an answer, however close to a tie.
//
// A box is 2·dims numbers: the lowest corner, then the highest.
#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/dtype.h"

namespace tessera::cpu::points {

// f(integral_constant) with the number of dims where loops of that length are worth having, else 0.
template <class F>
void dispatch_dims(int dims, F&& f) {
  switch (dims) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 3:
      return f(std::integral_constant<int, 3>{});
    default:
      return f(std::integral_constant<int, 0>{});
  }
}
// f(type tag) for float and double.
template <class F>
void dispatch_coordinates(DType dtype, F&& f) {
  if (dtype == DType::F64) return f(TypeTag<double>{});
  f(TypeTag<float>{});
}

// At most the distance of any point in [a_lo, a_hi] from any in [b_lo, b_hi]. A point is a box of one corner.
template <int D, class T>
T least_distance(const T* a_lo, const T* a_hi, const T* b_lo, const T* b_hi, int runtime_dims) {
  const int dims = D > 0 ? D : runtime_dims;
  T sum = 0;
  for (int d = 0; d < dims; ++d) {
    const T above = b_lo[d] - a_hi[d];
    const T below = a_lo[d] - b_hi[d];
    const T apart = above > below ? above : below;
    const T gap = apart > T(0) ? apart : T(0);
    sum = sum + gap * gap;
  }
  return std::sqrt(sum);
}
template <int D, class T>
T least_distance(const T* a, const T* b, int runtime_dims) {
  const int dims = D > 0 ? D : runtime_dims;
  return least_distance<D>(a, a + dims, b, b + dims, dims);
}

// At least the distance of any point in one box from any point in the other.
template <int D, class T>
T most_distance(const T* a, const T* b, int runtime_dims) {
  const int dims = D > 0 ? D : runtime_dims;
  T sum = 0;
  for (int d = 0; d < dims; ++d) {
    const T up = b[dims + d] - a[d];
    const T down = a[dims + d] - b[d];
    const T span = up > down ? up : down;
    sum = sum + span * span;
  }
  return std::sqrt(sum);
}

// A square that no sum exceeds whose root, once rounded, is at most `distance`: comparing with it spares most
// roots. Not tight, and need not be.
template <class T>
T square_bound(T distance) {
  using Limits = std::numeric_limits<T>;
  return distance * distance * (1 + 8 * Limits::epsilon()) + 4 * Limits::denorm_min();
}

}  // namespace tessera::cpu::points
