// One direction of a convolution, outputs from inputs or the data gradient, as lines of a target that are
// summed up from lines of a source. Internal to the kernels that work line by line.
#pragma once
#include "ops/cpu/conv_outer.h"
#include "ops/cpu/conv_source.h"

namespace tessera::cpu {

template <class T>
struct ConvMaps {
  ConvMaps(const ConvProblem& problem, const OuterDims& outer, bool data_gradient)
      : p(problem), o(outer), backward(data_gradient) {}

  const ConvProblem& p;
  OuterDims o;  // of the convolution
  bool backward;
  SourceMap<T> source;  // of group 0; how much of a line is read, whoever reads it says
  T* target = nullptr;
  // What follows the sums of a line, and where it writes (as the target lies, or the target).
  Activation activation = Activation::None;
  T* activated = nullptr;
  std::int64_t target_sample = 0;
  std::int64_t target_outer[2] = {0, 0};
  std::int64_t target_step = 0;  // from position to position
  std::int64_t target_channel = 1;
  std::int64_t target_sizes[2] = {1, 1};
  std::int64_t target_size = 0;      // positions of a line
  std::int64_t target_channels = 0;  // of a group
  const T* bias = nullptr;
  std::int64_t bias_step = 0;

  std::int64_t outer_taps() const { return o.kernel[0] * o.kernel[1]; }
  std::int64_t target_lines() const { return p.samples * target_sizes[0] * target_sizes[1]; }
  T* target_line(std::int64_t sample, std::int64_t u, std::int64_t v) const {
    return target + sample * target_sample + u * target_outer[0] + v * target_outer[1];
  }
  // The source line that outer tap k of dim d adds to target line j; -1: none.
  std::int64_t source_line(int d, std::int64_t j, std::int64_t k) const {
    std::int64_t i = j * o.stride[d] - o.padding[d] + k * o.dilation[d];
    if (backward) {
      i = j + o.padding[d] - k * o.dilation[d];
      if (i % o.stride[d] != 0) return -1;
      i /= o.stride[d];
    }
    return i >= 0 && i < source.sizes[d] ? i : -1;
  }

  void set_source(const Array& map, std::int64_t channels) {
    source.data = map.data<T>();
    source.channel = channel_step(map);
    source.sample = map.stride(0);
    source.step = map.stride(map.dim() - 1);
    source.size = map.size(map.dim() - 1);
    source.channels = channels;
    for (int d = 0; d < 2; ++d) {
      source.outer[d] = backward ? o.y_stride[d] : o.x_stride[d];
      source.sizes[d] = backward ? o.out[d] : o.in[d];
      source.span[d] = o.dilation[d] * (o.kernel[d] - 1) + 1;
    }
    source.planes = o.kernel[0] > 1;
  }
  void set_target(const Array& map, std::int64_t channels) {
    target = map.data<T>();
    target_sample = map.stride(0);
    target_step = map.stride(map.dim() - 1);
    target_channel = channel_step(map);
    target_size = map.size(map.dim() - 1);
    target_channels = channels;
    for (int d = 0; d < 2; ++d) {
      target_outer[d] = backward ? o.x_stride[d] : o.y_stride[d];
      target_sizes[d] = backward ? o.in[d] : o.out[d];
    }
  }
  void set_bias(const Array& b) {
    if (!b.defined()) return;
    bias = b.data<T>();
    bias_step = b.stride(0);
  }
  // False: what the activation is given lies otherwise than what it gives; it has to be a pass of its own.
  bool set_activation(const ConvArgs& args) {
    if (args.given().strides() != args.y.strides()) return false;
    activation = args.activation;
    activated = args.y.data<T>();
    return true;
  }
};

}  // namespace tessera::cpu
