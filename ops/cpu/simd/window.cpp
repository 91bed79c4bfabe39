// Sparse matrices along a dim whose elements are runs of contiguous numbers.
#include "ops/cpu/simd/window_table.h"

#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using Count = std::int64_t;

constexpr Count kColumns = 2048;  // numbers of a long row that are worked on at a time: they stay in cache

// y (+)= sum of w[k] x[k], N runs at once.
template <int N, bool kFirst, class T>
inline void add_columns(T* y, const T* const* x, const T* w, Count n) {
  const T* from[N];
  Vector<T> weight[N];
  for (int k = 0; k < N; ++k) {
    from[k] = x[k];
    weight[k] = Vector<T>{} + w[k];
  }
  Count i = 0;
  for (; i + kWidth<T> <= n; i += kWidth<T>) {
    Vector<T> s = weight[0] * load(from[0] + i);
    for (int k = 1; k < N; ++k) s = s + weight[k] * load(from[k] + i);
    store(y + i, kFirst ? s : load(y + i) + s);
  }
  for (; i < n; ++i) {
    T s = weight[0][0] * from[0][i];
    for (int k = 1; k < N; ++k) s = s + weight[k][0] * from[k][i];
    y[i] = kFirst ? s : y[i] + s;
  }
}

template <bool kFirst, class T>
void add_some(T* y, const T* const* x, const T* w, Count n, Count taps) {
  if (taps == 1) add_columns<1, kFirst>(y, x, w, n);
  if (taps == 2) add_columns<2, kFirst>(y, x, w, n);
  if (taps == 3) add_columns<3, kFirst>(y, x, w, n);
  if (taps == 4) add_columns<4, kFirst>(y, x, w, n);
}

template <class T>
void one_row(T* y, const T* x, const typename WindowBlocks<T>::Rows& r, Count o) {
  const Count begin = r.first[o];
  const Count end = r.first[o + 1];
  if (begin == end)
    for (Count i = 0; i < r.inner; ++i) y[i] = T(0);
  const Count step = end - begin > 4 ? kColumns : r.inner;
  for (Count j = 0; j < r.inner; j += step) {
    const Count n = r.inner - j < step ? r.inner - j : step;
    for (Count t = begin; t < end; t += 4) {
      const Count taps = end - t < 4 ? end - t : 4;
      const T* from[4];
      for (Count k = 0; k < taps; ++k) from[k] = x + r.index[t + k] * r.inner + j;
      if (t == begin) {
        add_some<true>(y + j, from, r.weight + t, n, taps);
      } else {
        add_some<false>(y + j, from, r.weight + t, n, taps);
      }
    }
  }
}

template <int N, class T>
void even_rows(T* y, const T* x, const typename WindowBlocks<T>::Rows& rows) {
  const Count inner = rows.inner;
  const Count* index = rows.index + rows.lo * N;
  const T* weight = rows.weight + rows.lo * N;
  for (Count o = rows.lo; o < rows.hi; ++o, y += inner, index += N, weight += N) {
    const T* from[N];
    for (int k = 0; k < N; ++k) from[k] = x + index[k] * inner;
    add_columns<N, true>(y, from, weight, inner);
  }
}

template <class T>
void add_where(T* to, const T* y, const Count* index, Count position, Count n) {
#pragma GCC ivdep
  for (Count i = 0; i < n; ++i) to[i] += index[i] == position ? y[i] : T(0);
}

template <class T>
void rows_block(T* y, const T* x, const typename WindowBlocks<T>::Rows& rows) {
  if (rows.taps == 1) return even_rows<1>(y, x, rows);
  if (rows.taps == 2) return even_rows<2>(y, x, rows);
  if (rows.taps == 3) return even_rows<3>(y, x, rows);
  if (rows.taps == 4) return even_rows<4>(y, x, rows);
  for (Count o = rows.lo; o < rows.hi; ++o) one_row<T>(y + (o - rows.lo) * rows.inner, x, rows, o);
}

}  // namespace

const WindowTable& window_table() {
  static constexpr WindowTable table{{&rows_block<float>, &add_where<float>},
                                     {&rows_block<double>, &add_where<double>}};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
