// Convolutions and their gradients without a buffer for the whole input (see conv_frame.h): the inside is
// computed while the halo, or its gradient, travels. Internal to ops/conv.
#pragma once
#include "ops/conv/conv_plan.h"

namespace tessera {

// A plan whose frame is used.
struct FramedPlan {
  const ConvPlan& plan;
  const ConvSetup& setup;
  const ConvFrame* chosen = nullptr;  // by the functions below
  const ConvFrame& frame() const { return chosen != nullptr ? *chosen : plan.frame; }
};

// Writes y, and z if it is wanted (see cpu::ConvArgs). Gives what arrived of the halo, for the weight's
// gradient.
struct FramedForward {
  Array y, x, w, bias;
  Activation activation = Activation::None;
  Array z = {};
};
Array framed_forward(const FramedPlan& framed, const FramedForward& call);
// The latter alone.
Array framed_arrivals(const FramedPlan& framed, const Array& x);

// The gradient of an input of local sizes `x_sizes`. A bias (of a transposed convolution; may be undefined)
// is added to it.
struct FramedBackwardData {
  Array dy, w, bias;
};
Array framed_backward_data(const FramedPlan& framed, const FramedBackwardData& call, const Dims& x_sizes);
// One number per channel, added to all positions of y [N, C, ...].
void add_bias(const Array& y, const Array& bias);

// Writes dw. `arrived`: what framed_forward gave for this x; undefined: fetched again.
struct FramedBackwardWeight {
  Array dw, dy, x, arrived;
};
void framed_backward_weight(const FramedPlan& framed, const FramedBackwardWeight& call);

}  // namespace tessera
