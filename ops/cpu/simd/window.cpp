// Windows: sparse matrices along a dim whose elements are runs of contiguous numbers or lie side by side
// themselves, and largest values.
#include "ops/cpu/simd/window_table.h"

#include <utility>

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

// The bits of 0 + y, which of -0 makes 0.
template <class T>
void put_where(T* to, const T* y, const Count* index, Count position, Count n) {
#pragma GCC ivdep
  for (Count i = 0; i < n; ++i) to[i] = T(0) + (index[i] == position ? y[i] : T(0));
}

template <class T>
void rows_block(T* y, const T* x, const typename WindowBlocks<T>::Rows& rows) {
  if (rows.taps == 1) return even_rows<1>(y, x, rows);
  if (rows.taps == 2) return even_rows<2>(y, x, rows);
  if (rows.taps == 3) return even_rows<3>(y, x, rows);
  if (rows.taps == 4) return even_rows<4>(y, x, rows);
  for (Count o = rows.lo; o < rows.hi; ++o) one_row<T>(y + (o - rows.lo) * rows.inner, x, rows, o);
}

constexpr int kEveryOther = 3;  // in place of a number of vectors: blocks that a line calls even

// A permutation that is a constant of the instruction takes one or two of them, any other two and a blend.
template <class T, int... kLane>
inline Vector<T> every_other(Vector<T> a, Vector<T> b, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, 2 * kLane...);
}

// The numbers of tap `entry` of a block of outputs, each in its lane. kVectors is that of the line.
template <int kVectors, class T>
inline Vector<T> taken(const T* x, const WindowLine<T>& line, Count entry) {
  constexpr int kOrders = kVectorBytes / 4;
  const std::int32_t* order = line.order + entry * kOrders;
  if constexpr (kVectors == kEveryOther) {
    const T* from = x + line.from[entry];
    return every_other<T>(load(from), load(from + kWidth<T>), std::make_integer_sequence<int, kWidth<T>>{});
  } else if constexpr (kVectors == 0) {
    Vector<T> v;
    for (int i = 0; i < kWidth<T>; ++i) {
      const std::int32_t at = order[i * (kOrders / kWidth<T>)];
      v[i] = x[at < 0 ? 0 : at];
    }
    return v;
  } else {
    const T* from = x + line.from[entry];
    const Int32Vector lanes = load(order);
    const auto a = reinterpret_cast<Vector<float>>(load(from));
    if constexpr (kVectors == 1) return reinterpret_cast<Vector<T>>(__builtin_shuffle(a, lanes));
    const auto b = reinterpret_cast<Vector<float>>(load(from + kWidth<T>));
    return reinterpret_cast<Vector<T>>(__builtin_shuffle(a, b, lanes));
  }
}

// What an output lacks counts as 0 times -0, which changes no sum: a weight of 0 would let infinity in.
template <int kVectors, bool kRagged, class T>
inline Vector<T> product(const T* x, const WindowLine<T>& line, Count entry) {
  Vector<T> v = taken<kVectors>(x, line, entry);
  if constexpr (kRagged) {
    const Int32Vector lacking = load(line.order + entry * (kVectorBytes / 4)) >> 31;
    v = reinterpret_cast<Vector<T>>(reinterpret_cast<Int32Vector>(v) & ~lacking);
  }
  return load(line.weight + entry * kWidth<T>) * v;
}

template <int kVectors, bool kRagged, class T>
void line_blocks(T* y, const T* x, WindowLine<T> line, Count lo, Count hi) {
  for (Count b = lo; b < hi; ++b) {
    const Count first = b * line.taps;
    Vector<T> sum = {};
    for (Count t = 0; t < line.taps; t += 4) {
      const Count end = line.taps - t < 4 ? line.taps : t + 4;
      Vector<T> four = product<kVectors, kRagged>(x, line, first + t);
      for (Count k = t + 1; k < end; ++k) four = four + product<kVectors, kRagged>(x, line, first + k);
      sum = t == 0 ? four : sum + four;
    }
    store(y + line.output[b], sum);
  }
}

// The same with kTaps taps each, all of them there.
template <int kVectors, int kTaps, class T>
void even_blocks(T* y, const T* x, WindowLine<T> line, Count lo, Count hi) {
  for (Count b = lo; b < hi; ++b) {
    Vector<T> sum = product<kVectors, false>(x, line, b * kTaps);
#pragma GCC unroll 4
    for (int k = 1; k < kTaps; ++k) sum = sum + product<kVectors, false>(x, line, b * kTaps + k);
    store(y + line.output[b], sum);
  }
}

template <int kVectors, class T>
void blocks_of_line(T* y, const T* x, const WindowLine<T>& line, Count lo, Count hi) {
  if (line.ragged) return line_blocks<kVectors, true>(y, x, line, lo, hi);
  switch (line.taps) {
    case 1:
      return even_blocks<kVectors, 1>(y, x, line, lo, hi);
    case 2:
      return even_blocks<kVectors, 2>(y, x, line, lo, hi);
    case 3:
      return even_blocks<kVectors, 3>(y, x, line, lo, hi);
    case 4:
      return even_blocks<kVectors, 4>(y, x, line, lo, hi);
    default:
      return line_blocks<kVectors, false>(y, x, line, lo, hi);
  }
}

// The even blocks among [lo, hi); where there are none, an empty range within.
struct Blocks {
  Count lo, hi;
};
template <class T>
inline Blocks even_of(const WindowLine<T>& line, Count lo, Count hi) {
  const auto within = [](Count i, Count least, Count most) {
    return i < least ? least : i > most ? most : i;
  };
  const Count from = within(line.even_lo, lo, hi);
  return {from, within(line.even_hi, from, hi)};
}

template <class T>
void line_sums(T* y, const T* x, const WindowLine<T>& line, Count lo, Count hi) {
  if (line.vectors == 0) return blocks_of_line<0>(y, x, line, lo, hi);
  if (line.vectors == 1) return blocks_of_line<1>(y, x, line, lo, hi);
  const Blocks even = even_of(line, lo, hi);
  blocks_of_line<2>(y, x, line, lo, even.lo);
  blocks_of_line<kEveryOther>(y, x, line, even.lo, even.hi);
  blocks_of_line<2>(y, x, line, even.hi, hi);
}

inline void store_places(Count* to, Int64Vector places, Count start) { store(to, places + start); }
inline void store_places(Count* to, Int32Vector places, Count start) {
  typedef std::int32_t Half __attribute__((vector_size(kVectorBytes / 2)));
  Half half[2];
  __builtin_memcpy(half, &places, sizeof(half));
  store(to, __builtin_convertvector(half[0], Int64Vector) + start);
  store(to + kWidth<Count>, __builtin_convertvector(half[1], Int64Vector) + start);
}

// kTaps: of every window, or 0 where that is not known.
template <int kVectors, bool kIndices, int kTaps, class T>
void largest_blocks(T* y, Count* index, typename WindowBlocks<T>::Lines lines, WindowLine<T> line,
                    Blocks blocks) {
  using Place = typename WindowLine<T>::Place;
  const Count taps = kTaps > 0 ? kTaps : line.taps;
  for (Count b = blocks.lo; b < blocks.hi; ++b) {
    const Count first = b * taps;
    Vector<T> best = Vector<T>{} - T(__builtin_inf());
    Vector<Place> at = load(line.place + first * kWidth<T>) + lines.at[0];
    for (Count i = 0; i < lines.count; ++i)
#pragma GCC unroll 4
      for (Count k = first; k < first + taps; ++k) {
        const Vector<T> v = taken<kVectors>(lines.x[i], line, k);
        const auto takes = (v > best) | (v != v);
        best = takes ? v : best;
        if constexpr (kIndices) at = takes ? load(line.place + k * kWidth<T>) + lines.at[i] : at;
      }
    store(y + line.output[b], best);
    if constexpr (kIndices) store_places(index + line.output[b], at, lines.start);
  }
}

template <int kVectors, bool kIndices, class T>
void largest_of_line(T* y, Count* index, const typename WindowBlocks<T>::Lines& lines,
                     const WindowLine<T>& line, Blocks blocks) {
  if (line.taps == 2) return largest_blocks<kVectors, kIndices, 2, T>(y, index, lines, line, blocks);
  if (line.taps == 3) return largest_blocks<kVectors, kIndices, 3, T>(y, index, lines, line, blocks);
  largest_blocks<kVectors, kIndices, 0, T>(y, index, lines, line, blocks);
}

template <int kVectors, class T>
void largest_blocks_of(T* y, Count* index, const typename WindowBlocks<T>::Lines& lines,
                       const WindowLine<T>& line, Blocks blocks) {
  if (index != nullptr) return largest_of_line<kVectors, true, T>(y, index, lines, line, blocks);
  largest_of_line<kVectors, false, T>(y, index, lines, line, blocks);
}

template <class T>
void largest(T* y, Count* index, const typename WindowBlocks<T>::Lines& lines, const WindowLine<T>& line,
             Count blocks) {
  if (line.vectors == 0) return largest_blocks_of<0, T>(y, index, lines, line, {0, blocks});
  if (line.vectors == 1) return largest_blocks_of<1, T>(y, index, lines, line, {0, blocks});
  const Blocks even = even_of(line, 0, blocks);
  largest_blocks_of<2, T>(y, index, lines, line, {0, even.lo});
  largest_blocks_of<kEveryOther, T>(y, index, lines, line, even);
  largest_blocks_of<2, T>(y, index, lines, line, {even.hi, blocks});
}

// One vector of them; kIndices: whether places are wanted.
template <bool kIndices, class T>
inline void largest_vector(T* y, Count* index, const typename WindowBlocks<T>::Lines& taps, Count i) {
  using Place = typename WindowLine<T>::Place;
  Vector<T> best = Vector<T>{} - T(__builtin_inf());
  Vector<Place> at = {};
  for (Count t = 0; t < taps.count; ++t) {
    const Vector<T> v = load(taps.x[t] + i);
    const auto takes = (v > best) | (v != v);
    best = takes ? v : best;
    if constexpr (kIndices) at = takes ? Vector<Place>{} + taps.at[t] : at;
  }
  store(y + i, best);
  if constexpr (kIndices) store_places(index + i, at, taps.start);
}

template <class T>
void largest_of(T* y, Count* index, const typename WindowBlocks<T>::Lines& given, Count n) {
  const typename WindowBlocks<T>::Lines taps = given;
  Count i = 0;
  if (index == nullptr) {
    for (; i + kWidth<T> <= n; i += kWidth<T>) largest_vector<false>(y, index, taps, i);
  } else {
    for (; i + kWidth<T> <= n; i += kWidth<T>) largest_vector<true>(y, index, taps, i);
  }
  for (; i < n; ++i) {
    T best = -T(__builtin_inf());
    Count at = 0;
    for (Count t = 0; t < taps.count; ++t) {
      const T v = taps.x[t][i];
      const bool takes = (static_cast<int>(v > best) | static_cast<int>(v != v)) != 0;
      best = takes ? v : best;
      at = takes ? taps.at[t] : at;
    }
    y[i] = best;
    if (index != nullptr) index[i] = taps.start + at;
  }
}

// Without instructions that permute by a vector, element by element is quicker.
template <class T>
constexpr WindowBlocks<T> blocks() {
  return {&rows_block<T>, &add_where<T>, &put_where<T>, kVectorBytes > 16 ? kWidth<T> : 0,
          &line_sums<T>,  &largest<T>,   &largest_of<T>};
}

}  // namespace

const WindowTable& window_table() {
  static constexpr WindowTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
