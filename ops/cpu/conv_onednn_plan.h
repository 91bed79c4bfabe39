// oneDNN's primitives for convolutions, with the conversions that go with them. Internal to conv_onednn*.cpp.
#pragma once
#include "ops/cpu/conv_choice.h"
#include "ops/cpu/onednn.h"

namespace tessera::cpu {

// An operand that the primitive wants in a layout of its own: the conversion to it (of what is written: from
// it), and the bytes it takes. Null: as the caller has it.
struct Operand {
  std::unique_ptr<onednn::Plan> reorder;
  std::int64_t bytes = 0;
};
// The primitive for `samples` samples.
struct ConvPrimitive {
  std::unique_ptr<onednn::Plan> conv;
  Operand x, w, y;
};

// What of a call decides on the primitive, beside the problem.
struct WantedConv {
  ConvPass pass;
  bool any;  // maps in the layout that oneDNN likes best
  std::int64_t samples;
  bool bias;
  Activation activation = Activation::None;  // forward: follows in the same pass
};

// This thread's, made when it is first asked for; null: oneDNN has no good one. It lives until others are
// asked for.
ConvPrimitive* find_conv(const ConvProblem& p, const WantedConv& want, const Array& w);

// Whether a primitive may be asked for the activation: what oneDNN makes of NaN and infinities is what
// activations of ours do.
inline bool means_ours(Activation activation) {
  return activation == Activation::Silu || activation == Activation::GeluTanh;
}

}  // namespace tessera::cpu
