// Convolutions of channels-last lines: a tile of the output, or of the weights' gradient, stays in registers.
#include "ops/cpu/simd/conv_table.h"
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using i64 = std::int64_t;

// Vectors of columns in a tile, and how many rows of so many vectors the registers hold beside one row of dy
// and one element of x.
constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
constexpr int kSums = kVectorBytes == 64 ? 24 : 12;

template <class T, int rows, int vectors>
void tile(const ConvWeightLines<T>& b, i64 row, i64 column) {
  Vector<T> acc[rows][vectors];
  T* sums = b.sums + row * b.sums_step + column;
#pragma GCC unroll 24
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) acc[i][j] = load(sums + i * b.sums_step + j * kWidth<T>);
  for (i64 l = 0; l < b.lines; ++l) {
    const T* x = b.x[l] + row;
    const T* dy = b.dy[l] + column;
    for (i64 p = b.positions; p > 0; --p) {
      Vector<T> g[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) g[j] = load(dy + j * kWidth<T>);
#pragma GCC unroll 24
      for (int i = 0; i < rows; ++i) {
        const T s = x[i];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) acc[i][j] += g[j] * s;
      }
      x += b.x_step;
      dy += b.dy_step;
    }
  }
#pragma GCC unroll 24
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) store(sums + i * b.sums_step + j * kWidth<T>, acc[i][j]);
}

// Rows [row, b.rows), `rows` at a time, the rest half as many at a time.
template <class T, int rows, int vectors>
void rows_from(const ConvWeightLines<T>& b, i64 row, i64 column) {
  for (; row + rows <= b.rows; row += rows) tile<T, rows, vectors>(b, row, column);
  if constexpr (rows > 1) rows_from<T, (rows + 1) / 2, vectors>(b, row, column);
}

template <class T>
void weight_lines(const ConvWeightLines<T>& b) {
  i64 c = 0;
  for (; c + kVectors * kWidth<T> <= b.columns; c += kVectors * kWidth<T>)
    rows_from<T, kSums / kVectors, kVectors>(b, 0, c);
  const i64 left = (b.columns - c) / kWidth<T>;
  if constexpr (kVectors == 4) {
    if (left == 3) return rows_from<T, kSums / 3, 3>(b, 0, c);
    if (left == 2) return rows_from<T, kSums / 2, 2>(b, 0, c);
  }
  if (left == 1) rows_from<T, kSums, 1>(b, 0, c);
}

template <class T, int rows, int vectors>
void map_tile(const ConvMapLine<T>& b, i64 row, i64 column) {
  Vector<T> acc[rows][vectors];
  T* y = b.y + row * b.y_step + column;
  const T* from = b.start == nullptr ? y : b.start + column;
  const i64 from_step = b.start == nullptr ? b.y_step : 0;
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) acc[i][j] = load(from + i * from_step + j * kWidth<T>);
  const i64 step = b.x_step;
  for (i64 n = 0; n < b.count; ++n) {
    const ConvTerms<T>& terms = b.terms[n];
    const T* w = b.w + column * b.w_column + terms.row * b.w_row;
    const T* x[(rows + 2) / 3];  // of every third row: few addresses to keep
#pragma GCC unroll 4
    for (int i = 0; i < (rows + 2) / 3; ++i) x[i] = terms.x + (row + 3 * i) * step;
    for (i64 k = 0; k < terms.depth; ++k) {
      Vector<T> f[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) f[j] = load(w + j * kWidth<T>);
#pragma GCC unroll 12
      for (int i = 0; i < rows; ++i) {
        const T s = x[i / 3][k + (i % 3) * step];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) acc[i][j] += f[j] * s;
      }
      w += b.w_row;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) store(y + i * b.y_step + j * kWidth<T>, acc[i][j]);
}

template <class T, int rows, int vectors>
void map_rows(const ConvMapLine<T>& b, i64 row, i64 column) {
  for (; row + rows <= b.positions; row += rows) map_tile<T, rows, vectors>(b, row, column);
  if constexpr (rows > 1) map_rows<T, (rows + 1) / 2, vectors>(b, row, column);
}

template <class T>
constexpr i64 kPanel = kVectors* kWidth<T>;

template <class T>
void map_line(const ConvMapLine<T>& b) {
  i64 c = 0;
  for (; c + kPanel<T> <= b.columns; c += kPanel<T>) map_rows<T, kSums / kVectors, kVectors>(b, 0, c);
  const i64 left = (b.columns - c) / kWidth<T>;
  if constexpr (kVectors == 4) {
    if (left == 3) return map_rows<T, kSums / 3, 3>(b, 0, c);
    if (left == 2) return map_rows<T, kSums / 2, 2>(b, 0, c);
  }
  if (left == 1) map_rows<T, 12, 1>(b, 0, c);
}

template <class T>
inline void store_sums(const ConvSums<T>& b, T* y, i64 column, Vector<T> sum) {
  const i64 outputs = b.outputs - column;
  y += column * b.y_channel;
  if (b.y_channel == 1 && outputs >= kWidth<T>) return store(y, sum);
  T room[kWidth<T>];
  store(room, sum);
  if (b.y_channel == 1 && outputs == 4 && kWidth < T >> 4) {
    __builtin_memcpy(y, room, 4 * sizeof(T));
  } else {
    for (i64 o = 0; o < kWidth<T> && o < outputs; ++o) y[o * b.y_channel] = room[o];
  }
}

// `own`: one filter a channel.
template <class T, bool own, int places>
void sums_at(const ConvSums<T>& b, i64 place, i64 column) {
  const T* x[places];
  Vector<T> acc[places];
#pragma GCC unroll 8
  for (int i = 0; i < places; ++i) {
    x[i] = b.x + b.from[place + i] + (own ? column : 0);
    acc[i] = load(b.bias + column);
  }
  const T* w = b.w + column;
  const ConvTerm* const end = b.terms + b.count;
  for (const ConvTerm* term = b.terms; term != end; ++term) {
    const Vector<T> f = load(w + term->w);
    const i64 at = term->x;
#pragma GCC unroll 8
    for (int i = 0; i < places; ++i) {
      if constexpr (own) {
        acc[i] += f * load(x[i] + at);
      } else {
        acc[i] += f * x[i][at];
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < places; ++i) store_sums(b, b.y + b.to[place + i], column, acc[i]);
}

template <class T, bool own, int places>
void sums_from(const ConvSums<T>& b, i64 place, i64 column) {
  for (; place + places <= b.places; place += places) sums_at<T, own, places>(b, place, column);
  if constexpr (places > 1) sums_from<T, own, places / 2>(b, place, column);
}

template <class T, bool own>
void sums(const ConvSums<T>& given) {
  const ConvSums<T> b = given;
  for (i64 column = 0; column < b.columns; column += kWidth<T>) sums_from<T, own, 8>(b, 0, column);
}

// a and b in turn, their lanes summed by pairs: a0 + a2, b0 + b2, a1 + a3, b1 + b3 of every four lanes.
inline Vector<float> paired(Vector<float> a, Vector<float> b) {
  Int32Vector low;
  Int32Vector high;
  for (int i = 0; i < kWidth<float>; ++i) {
    low[i] = i / 4 * 4 + i % 4 / 2 + i % 2 * kWidth<float>;
    high[i] = low[i] + 2;
  }
  return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
}

// The sums over the lanes of four vectors, in the first four lanes: of 0, 2, 1, 3.
inline Vector<float> sums_of_four(const Vector<float>* v) {
  Vector<float> sums = paired(paired(v[0], v[1]), paired(v[2], v[3]));
  if constexpr (kWidth<float> >= 16) sums += rotated<kWidth<float> / 2>(sums);
  if constexpr (kWidth<float> >= 8) sums += rotated<4>(sums);
  return sums;
}

template <int positions>
inline void four_products(const ConvFourFilters& p, i64 first) {
  Vector<float> sums[positions][4] = {};
  const float* x = p.x + first * p.channels;
  const float* w = p.w;
  for (i64 k = 0; k < p.channels; k += kWidth<float>, w += 4 * kWidth<float>)
#pragma GCC unroll 4
    for (int f = 0; f < 4; ++f) {
      const Vector<float> filter = load(w + f * kWidth<float>);
#pragma GCC unroll 4
      for (int i = 0; i < positions; ++i) sums[i][f] += load(x + i * p.channels + k) * filter;
    }
#pragma GCC unroll 4
  for (int i = 0; i < positions; ++i) {
    float room[kWidth<float>];
    store(room, sums_of_four(sums[i]));
    float* y = p.y + (first + i) * p.y_step;
    if (p.filters == 4) {
      for (int f = 0; f < 4; ++f) y[f] = room[f] + p.bias[f];
    } else {
      for (i64 f = 0; f < p.filters; ++f) y[f] = room[f] + p.bias[f];
    }
  }
}

void four_filters(const ConvFourFilters& given) {
  const ConvFourFilters p = given;
  constexpr int kTogether = kVectorBytes == 64 ? 4 : 2;
  i64 i = 0;
  for (; i + kTogether <= p.positions; i += kTogether) four_products<kTogether>(p, i);
  for (; i < p.positions; ++i) four_products<1>(p, i);
}

constexpr i64 kLinesAtOnce = 8;  // that are read side by side

// Adds lines [k, k + lines) to the sums of two vectors of positions from `i` on, filter by filter.
template <int kFilters>
inline void add_lines(const ConvFourOfLines& p, i64 k, i64 lines, i64 i) {
  using V = Vector<float>;
  constexpr i64 kStep = kWidth<float>;
  V acc[kFilters][2];
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      acc[f][v] = k > 0 ? load(p.sums + f * p.positions + i + v * kStep) : V{} + p.bias[f];
  const float* x = p.x + k * p.x_step + i;
  const float* w = p.w + k * 4;
  for (i64 l = 0; l < lines; ++l, x += p.x_step, w += 4) {
    const V a = load(x);
    const V b = load(x + kStep);
#pragma GCC unroll 4
    for (int f = 0; f < kFilters; ++f) {
      acc[f][0] += a * w[f];
      acc[f][1] += b * w[f];
    }
  }
#pragma GCC unroll 4
  for (int f = 0; f < kFilters; ++f)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) store(p.sums + f * p.positions + i + v * kStep, acc[f][v]);
}
// The same of one position, in the same order.
template <int kFilters>
inline void add_lines_at(const ConvFourOfLines& p, i64 k, i64 lines, i64 i) {
  for (int f = 0; f < kFilters; ++f) {
    float& sum = p.sums[f * p.positions + i];
    if (k == 0) sum = p.bias[f];
    for (i64 l = k; l < k + lines; ++l) sum += p.x[l * p.x_step + i] * p.w[l * 4 + f];
  }
}

template <int kFilters>
void filters_of_lines(const ConvFourOfLines& p) {
  constexpr i64 kStep = 2 * kWidth<float>;
  for (i64 k = 0; k < p.channels; k += kLinesAtOnce) {
    const i64 lines = p.channels - k < kLinesAtOnce ? p.channels - k : kLinesAtOnce;
    i64 i = 0;
    for (; i + kStep <= p.positions; i += kStep) add_lines<kFilters>(p, k, lines, i);
    for (; i < p.positions; ++i) add_lines_at<kFilters>(p, k, lines, i);
  }
  for (i64 i = 0; i < p.positions; ++i)
#pragma GCC unroll 4
    for (int f = 0; f < kFilters; ++f) p.y[i * kFilters + f] = p.sums[f * p.positions + i];
}

void four_of_lines(const ConvFourOfLines& given) {
  const ConvFourOfLines p = given;
  if (p.filters == 1) return filters_of_lines<1>(p);
  if (p.filters == 2) return filters_of_lines<2>(p);
  if (p.filters == 3) return filters_of_lines<3>(p);
  filters_of_lines<4>(p);
}

template <class T>
constexpr ConvBlocks<T> kBlocks{kWidth<T>,       kPanel<T>,      &map_line<T>,
                                &sums<T, false>, &sums<T, true>, &weight_lines<T>};

}  // namespace

const ConvTable& conv_table() {
  static constexpr ConvTable table{kBlocks<float>, kBlocks<double>, &four_filters, &four_of_lines};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
