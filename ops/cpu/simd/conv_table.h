// Vector kernels of convolutions on channels-last rows. Plain pointers only, as in tables.h.
#pragma once
#include <cstdint>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

// sums[r][o] += sum over lines l and positions p of x[l][p x_step + r] dy[l][p dy_step + o].
template <class T>
struct ConvWeightLines {
  T* sums;  // rows x columns
  const T* const* x;
  const T* const* dy;
  std::int64_t lines, positions;
  std::int64_t rows, columns;  // columns: a multiple of the vector width
  std::int64_t sums_step;      // from row to row
  std::int64_t x_step, dy_step;
};
// Terms that lie together: x[k] of every position is for row `row` + k of the weights.
template <class T>
struct ConvTerms {
  const T* x;
  std::int64_t row, depth;
};
// y[p y_step + o] = start[o] + sum over all terms k of x[p x_step + k] w[row + k][o]; without start, added to
// what y is. Row r of the weights for columns [o, o + panel) is at o w_column + r w_row, o a multiple of
// panel.
template <class T>
struct ConvMapLine {
  T* y;
  const ConvTerms<T>* terms;
  std::int64_t count;  // of terms
  const T* start;
  const T* w;
  std::int64_t w_column, w_row;
  std::int64_t columns;  // a multiple of the vector width
  std::int64_t positions;
  std::int64_t y_step, x_step;
};
// Sums at places of their own: y[to + o y_channel] = bias[o] + sum over terms of x[from + x] w[w + o], for
// the first `outputs` columns. One filter a channel: x[from + x + o] takes the place of x[from + x].
struct ConvTerm {
  std::int64_t x, w;
};
template <class T>
struct ConvSums {
  T* y;
  const T* x;
  const T* w;
  const T* bias;  // one number a column
  const std::int64_t* from;
  const std::int64_t* to;
  std::int64_t places;
  const ConvTerm* terms;
  std::int64_t count;  // of terms
  std::int64_t y_channel, outputs;
  std::int64_t columns;  // a multiple of the vector width
};
template <class T>
struct ConvBlocks {
  std::int64_t width;  // of a vector, in elements
  std::int64_t panel;  // columns that are worked on together
  void (*map_line)(const ConvMapLine<T>& line);
  void (*sums)(const ConvSums<T>& sums);
  void (*channel_sums)(const ConvSums<T>& sums);  // one filter a channel
  void (*weight_lines)(const ConvWeightLines<T>& block);
};
// Products with four filters at once: y[p y_step + f] = bias[f] + sum over k of x[p channels + k] filter
// f[k], the first `filters` of them. w holds them a vector's channels at a time, the four in the order 0, 2,
// 1, 3.
struct ConvFourFilters {
  float* y;
  const float* x;
  const float* w;
  const float* bias;                 // four numbers
  std::int64_t positions, channels;  // channels: a multiple of the vector width
  std::int64_t filters, y_step;
};
// The same where each channel is a line of its own: y[p filters + f] = bias[f] + sum over k of
// x[k x_step + p] w[4 k + f], for up to four filters. sums: room for as many results.
struct ConvFourOfLines {
  float* y;
  const float* x;
  std::int64_t x_step;
  const float* w;
  const float* bias;
  std::int64_t positions, channels, filters;
  float* sums;
};
struct ConvTable {
  ConvBlocks<float> f32;
  ConvBlocks<double> f64;
  void (*four_filters)(const ConvFourFilters& products);
  void (*four_of_lines)(const ConvFourOfLines& products);
};
TESSERA_ISA_TABLE(ConvTable, conv_table)

// Depthwise convolution, weight gradient: one row of outputs against one row of the kernel, channels
// innermost. acc[t * channels + c] += sum over o of dy[o * dy_step + c] x[(o * stride - padding + t *
// dilation) * x_step + c].
template <class T>
struct DepthwiseRow {
  T* acc;
  const T* dy;
  const T* x;
  std::int64_t dy_step, x_step;
  std::int64_t outputs, inputs, taps, channels;
  std::int64_t stride, padding, dilation;
};
// One line of outputs, some chunks of a few channels: for channel c of chunk k
// y[o y_step + k channels + c] = bias[k channels + c] + sum over the taps i of all lines of
// x[i][o x_step + k channels + c] w[i][k w_step + c].
template <class T>
struct DepthwiseLine {
  T* y;
  const T* const* x;
  const T* const* w;
  const T* bias;
  std::int64_t chunks, w_step;
  std::int64_t lines, taps;  // of each line
  std::int64_t outputs;
  std::int64_t y_step, x_step;
  bool dense;  // the taps of a line follow each other as its outputs do
};
template <class T>
struct DepthwiseBlocks {
  std::int64_t channels;  // of a chunk
  void (*line)(const DepthwiseLine<T>& line);
};
struct DepthwiseTable {
  DepthwiseBlocks<float> f32;
  DepthwiseBlocks<double> f64;
  void (*gradient_row)(const DepthwiseRow<float>& row);
};
TESSERA_ISA_TABLE(DepthwiseTable, depthwise_table)

}  // namespace tessera::cpu
