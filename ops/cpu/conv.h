// Convolution (cross-correlation) over 1, 2 or 3 spatial dims and its two gradients.
//
// y[n, o, p] = bias[o] + sum over c, r of x[n, c, p stride + r dilation - padding_lo] w[o, c, r], per group.
// Logical order is N C spatial...; memory should be channels-last (the last logical strides make C
// contiguous), which is handed to oneDNN as it lies, also as a slab of rows of a larger channels-last buffer.
// Other layouts, and some of a buffer's channels, are converted on the way. f32 and bf16 by oneDNN, f64 by
// our own loops, f16 by way of f32.
//
// An activation may follow: y = f(z), z being what is written above. Our own loops work on a line or a block
// of z while it is in the first-level cache. oneDNN's own code is used where it means what ours means, that
// is SiLU and GELU by tanh of which z is not wanted (its ReLU makes 0 of NaN, its GELU NaN of infinity);
// otherwise a second pass goes over each piece of samples that oneDNN has written, or over each slab of rows
// where a sample is larger than a cache.
#pragma once
#include "ops/cpu/norm_activation.h"
#include "runtime/array.h"

namespace tessera::cpu {

// One entry per spatial dim. Paddings may differ at the two ends and must not be negative.
struct ConvGeometry {
  Dims stride;
  Dims padding_lo;
  Dims padding_hi;
  Dims dilation;
  std::int64_t groups = 1;
  // Other ranks work out the same numbers: nothing is chosen by the clock, so that all get the same bits.
  bool replicated = false;
};

struct ConvArgs {
  Array y;     // [N, O, out...]
  Array x;     // [N, C, in...]
  Array w;     // [O, C / groups, kernel...]
  Array bias;  // [O], or undefined
  ConvGeometry geometry;
  Activation activation = Activation::None;
  Array z = {};  // as y: what the activation is given; undefined: not wanted
  const Array& given() const { return z.defined() ? z : y; }
};
void conv_forward(const ConvArgs& args);

// dx is overwritten; positions that no window touches become 0. A bias [C] is added (of a transposed
// convolution, whose output dx is).
struct ConvBackwardDataArgs {
  Array dx;
  Array dy;
  Array w;
  ConvGeometry geometry;
  Array bias = {};
};
void conv_backward_data(const ConvBackwardDataArgs& args);

// dw is overwritten.
struct ConvBackwardWeightArgs {
  Array dw;
  Array dy;
  Array x;
  ConvGeometry geometry;
};
void conv_backward_weight(const ConvBackwardWeightArgs& args);

// Strides of a dense array of these logical sizes (N C spatial...) with the channels innermost.
Dims channels_last_strides(const Dims& sizes);

}  // namespace tessera::cpu
