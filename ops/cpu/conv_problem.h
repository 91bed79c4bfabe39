// A convolution's sizes, checked and completed.
#pragma once
#include "ops/cpu/conv.h"

namespace tessera::cpu {

struct ConvProblem {
  int spatial = 0;
  std::int64_t samples = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t groups = 1;
  Dims in;  // spatial sizes
  Dims out;
  Dims kernel;
  Dims stride;
  Dims dilation;
  Dims padding_lo;
  // What the last window needs beyond the input; less than 0 where the windows end before the input does.
  Dims reach_hi;
  DType dtype = DType::F32;

  std::int64_t group_in() const { return in_channels / groups; }
  std::int64_t group_out() const { return out_channels / groups; }
  double flops() const {
    return 2.0 * static_cast<double>(samples * numel_of(out) * out_channels) *
           static_cast<double>(group_in() * numel_of(kernel));
  }
};

// Checks x, w and y against each other; refuses with the sizes.
ConvProblem conv_problem(const char* op, const Array& x, const Array& w, const Array& y,
                         const ConvGeometry& g);

// Refuses a bias that is not one number per channel of y, of y's type; it may be undefined.
void check_conv_bias(const char* op, const Array& bias, const Array& y);
// The bias as large as y.
Array spread_bias(const Array& bias, const Array& y);
// y = bias, for windows that hold no element.
void fill_with_bias(const Array& y, const Array& bias);
// Refuses a z that is not like y, or that no activation is given.
void check_conv_given(const char* op, const ConvArgs& args);
// The activation as a pass of its own: y = f(z).
void activate(const ConvArgs& args);

// By oneDNN, f32 and bf16, on channels-last maps or (`any`) in the layout that it likes best; false if it has
// no good implementation here.
bool conv_forward_onednn(const ConvProblem& p, const ConvArgs& args, bool any);
bool conv_backward_data_onednn(const ConvProblem& p, const ConvBackwardDataArgs& args, bool any);
bool conv_backward_weight_onednn(const ConvProblem& p, const ConvBackwardWeightArgs& args, bool any);

// Every sample's channels are innermost, without gaps between positions.
bool is_channels_last(const Array& a);

// One filter for each channel.
inline bool is_depthwise(const ConvProblem& p) {
  return p.groups > 1 && p.groups == p.in_channels && p.groups == p.out_channels;
}
// For depthwise convolutions, f32 and f64, line by line; a data gradient only where the last dim has no
// stride. False otherwise.
bool conv_forward_depthwise(const ConvProblem& p, const ConvArgs& args);
bool conv_backward_data_depthwise(const ConvProblem& p, const ConvBackwardDataArgs& args);
// For depthwise convolutions with a wide kernel; false for all others.
bool conv_backward_weight_depthwise(const ConvProblem& p, const ConvBackwardWeightArgs& args);

// Of so few products that all other ways take longer to begin; false otherwise.
bool conv_forward_few(const ConvProblem& p, const ConvArgs& args);
bool conv_backward_data_few(const ConvProblem& p, const ConvBackwardDataArgs& args);

// One position a window and few filters, f32 on channels-last maps; false otherwise.
bool conv_forward_narrow(const ConvProblem& p, const ConvArgs& args);

// Line by line, f32 and f64, any strides; false otherwise and where strides and dilation meet in a data
// gradient.
bool conv_forward_lines(const ConvProblem& p, const ConvArgs& args);
bool conv_backward_data_lines(const ConvProblem& p, const ConvBackwardDataArgs& args);
bool conv_backward_weight_lines(const ConvProblem& p, const ConvBackwardWeightArgs& args);

// By our own loops (patches to rows, then a matrix product), f32 and f64, any strides.
void conv_forward_own(const ConvProblem& p, const ConvArgs& args);
void conv_backward_data_own(const ConvProblem& p, const ConvBackwardDataArgs& args);
void conv_backward_weight_own(const ConvProblem& p, const ConvBackwardWeightArgs& args);

}  // namespace tessera::cpu
