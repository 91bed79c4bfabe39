// Sums and maxima over a contiguous row. Sums go into four registers, so that additions overlap; what is left
// of the row is added alone.
#pragma once
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

// f(position) gives a vector, g(position) the same for one element.
template <class T, class F, class G>
T sum_row(std::int64_t n, F f, G g) {
  constexpr std::int64_t w = kWidth<T>;
  Vector<T> acc[4] = {};
  std::int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w)
    for (int v = 0; v < 4; ++v) acc[v] += f(i + v * w);
  for (; i + w <= n; i += w) acc[0] += f(i);
  T rest = T(0);
  for (; i < n; ++i) rest += g(i);
  return sum_of<T>((acc[0] + acc[1]) + (acc[2] + acc[3])) + rest;
}

// Several sums of one pass over a row: f(position, vectors) and g(position, numbers) add to each of them. The
// row is read in so many shares at once (1, 2 or 4): the processor reads ahead along each that has pages of
// its own, which one alone of a long row would not keep busy.
template <class T, int terms, int shares, class F, class G>
void add_row(std::int64_t n, T* sums, F f, G g) {
  constexpr std::int64_t w = kWidth<T>;
  constexpr int each = 4 / shares;  // vectors of a share in one step
  Vector<T> acc[4][terms] = {};
  const std::int64_t share = n / (4 * w) * (each * w);
  for (std::int64_t i = 0; i < share; i += each * w)
    for (int v = 0; v < 4; ++v) f(i + v / each * share + v % each * w, acc[v]);
  T rest[terms] = {};
  for (std::int64_t i = shares * share; i < n; ++i) g(i, rest);
  for (int t = 0; t < terms; ++t)
    sums[t] = sum_of<T>((acc[0][t] + acc[1][t]) + (acc[2][t] + acc[3][t])) + rest[t];
}

// NaN is passed over; -inf for n = 0.
template <class T>
T max_row(const T* x, std::int64_t n) {
  constexpr std::int64_t w = kWidth<T>;
  constexpr T least = -static_cast<T>(__builtin_inf());
  Vector<T> a = Vector<T>{} + least;
  Vector<T> b = a;
  std::int64_t i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    const Vector<T> u = load(x + i);
    const Vector<T> v = load(x + i + w);
    a = u > a ? u : a;
    b = v > b ? v : b;
  }
  for (; i + w <= n; i += w) {
    const Vector<T> u = load(x + i);
    a = u > a ? u : a;
  }
  T best = max_of<T>(a > b ? a : b);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
