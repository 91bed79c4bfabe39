// Weight gradient of depthwise convolutions with wide kernels, where oneDNN's own is up to a thousand times
// too slow.
#include <algorithm>

#include "ops/cpu/conv_outer.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kLeastTaps = 5;  // of the last kernel dim; oneDNN is better with fewer
constexpr std::int64_t kChannels = 64;  // in a piece: four cache lines of every pixel

class DepthwiseGradient {
 public:
  DepthwiseGradient(const ConvProblem& p, const ConvBackwardWeightArgs& args)
      : p_(p), a_(args), o_(outer_dims(p, args.x, args.dy)), last_(p.spatial - 1) {}

  // Channels [c, c + n): all samples, all outputs.
  void run(std::int64_t c, std::int64_t n) const {
    const std::int64_t taps = numel_of(p_.kernel);
    float* sums = Workspace::begin().take<float>(taps * n);
    std::fill(sums, sums + taps * n, 0.0F);
    for (std::int64_t sample = 0; sample < p_.samples; ++sample)
      for (std::int64_t i = 0; i < o_.out[0]; ++i)
        for (std::int64_t j = 0; j < o_.out[1]; ++j) output_row(sums, c, n, {sample, i, j});
    write(sums, c, n);
  }

 private:
  struct At {
    std::int64_t sample, i, j;
  };

  void output_row(float* sums, std::int64_t c, std::int64_t n, const At& at) const {
    const float* dy =
        a_.dy.data<float>() + at.sample * a_.dy.stride(0) + at.i * o_.y_stride[0] + at.j * o_.y_stride[1] + c;
    const float* x = a_.x.data<float>() + at.sample * a_.x.stride(0) + c;
    const std::int64_t taps = p_.kernel[last_];
    for (std::int64_t k = 0; k < o_.kernel[0]; ++k)
      for (std::int64_t l = 0; l < o_.kernel[1]; ++l) {
        const std::int64_t u = at.i * o_.stride[0] - o_.padding[0] + k * o_.dilation[0];
        const std::int64_t v = at.j * o_.stride[1] - o_.padding[1] + l * o_.dilation[1];
        if (u < 0 || u >= o_.in[0] || v < 0 || v >= o_.in[1]) continue;
        depthwise_table().gradient_row({sums + (k * o_.kernel[1] + l) * taps * n, dy,
                                        x + u * o_.x_stride[0] + v * o_.x_stride[1], a_.dy.stride(last_ + 2),
                                        a_.x.stride(last_ + 2), p_.out[last_], p_.in[last_], taps, n,
                                        p_.stride[last_], p_.padding_lo[last_], p_.dilation[last_]});
      }
  }

  void write(const float* sums, std::int64_t c, std::int64_t n) const {
    float* dw = a_.dw.data<float>();
    const std::int64_t taps = numel_of(p_.kernel);
    for (std::int64_t t = 0; t < taps; ++t) {
      std::int64_t rest = t;
      std::int64_t offset = c * a_.dw.stride(0);
      for (int d = last_; d >= 0; --d) {
        offset += rest % p_.kernel[d] * a_.dw.stride(d + 2);
        rest /= p_.kernel[d];
      }
      for (std::int64_t i = 0; i < n; ++i) dw[offset + i * a_.dw.stride(0)] = sums[t * n + i];
    }
  }

  const ConvProblem& p_;
  const ConvBackwardWeightArgs& a_;
  OuterDims o_;
  int last_;
};

}  // namespace

bool conv_backward_weight_depthwise(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  if (!is_depthwise(p) || p.dtype != DType::F32 || p.kernel.back() < kLeastTaps) return false;
  ConvBackwardWeightArgs last = args;
  for (Array* map : {&last.x, &last.dy}) {
    if (map->stride(1) == 1) continue;
    const Array copy =
        Array::empty_strided(map->sizes(), channels_last_strides(map->sizes()), DType::F32, Device::Cpu);
    copy.copy_(*map);
    *map = copy;
  }
  const DepthwiseGradient gradient(p, last);
  parallel_for(ceil_div(p.groups, kChannels), threads_for(p.flops()), [&](std::int64_t i) {
    gradient.run(i * kChannels, std::min(kChannels, p.groups - i * kChannels));
  });
  return true;
}

}  // namespace tessera::cpu
