// Convolutions of one position a window (1x1) to few channels, as models end with: every output is a product
// of one position's channels with one filter. A product of matrices would leave most lanes of its tiles
// empty.
#include <algorithm>

#include "ops/cpu/conv_problem.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kFilters = 4;       // at once
constexpr std::int64_t kPositions = 1024;  // of a piece

bool all(const Dims& d, std::int64_t value) {
  return std::all_of(d.begin(), d.end(), [&](std::int64_t v) { return v == value; });
}

// Whether positions follow each other within each channel.
bool in_lines(const Array& a) {
  std::int64_t expected = 1;
  for (int d = a.dim() - 1; d >= 2; --d) {
    if (a.size(d) > 1 && a.stride(d) != expected) return false;
    expected *= a.size(d);
  }
  return true;
}

bool is_narrow(const ConvProblem& p, const ConvArgs& a) {
  return p.dtype == DType::F32 && p.groups == 1 && p.out_channels <= kFilters && all(p.kernel, 1) &&
         all(p.stride, 1) && all(p.padding_lo, 0) && p.in == p.out && is_channels_last(a.given());
}
bool reads_channels(const ConvProblem& p, const Array& x) {
  return is_channels_last(x) && p.in_channels % conv_table().f32.width == 0;
}

// The filters in the order of ConvFourFilters; those that lack are 0.
void pack(float* to, const Array& w, std::int64_t channels) {
  const std::int64_t width = conv_table().f32.width;
  constexpr std::int64_t kOrder[kFilters] = {0, 2, 1, 3};
  for (std::int64_t k = 0; k < channels; k += width)
    for (const std::int64_t f : kOrder)
      for (std::int64_t i = 0; i < width; ++i)
        *to++ = f < w.size(0) ? w.data<float>()[f * w.stride(0) + (k + i) * w.stride(1)] : 0.0F;
}
// And in that of ConvFourOfLines.
void pack_lines(float* to, const Array& w, std::int64_t channels) {
  for (std::int64_t k = 0; k < channels; ++k)
    for (std::int64_t f = 0; f < kFilters; ++f)
      *to++ = f < w.size(0) ? w.data<float>()[f * w.stride(0) + k * w.stride(1)] : 0.0F;
}

// Some positions of a sample.
void some(const ConvProblem& p, const ConvArgs& args, std::int64_t sample, Interval positions) {
  const Array& y = args.given();
  const Array& x = args.x;
  float* to = y.data<float>() + sample * y.stride(0) + positions.lo * p.out_channels;
  const float* from = x.data<float>() + sample * x.stride(0);
  const std::int64_t count = positions.hi - positions.lo;
  Workspace& space = Workspace::begin();
  float* w = space.take<float>(kFilters * p.in_channels);
  float bias[kFilters] = {};
  for (std::int64_t f = 0; args.bias.defined() && f < p.out_channels; ++f)
    bias[f] = args.bias.data<float>()[f * args.bias.stride(0)];
  if (reads_channels(p, x)) {
    pack(w, args.w, p.in_channels);
    conv_table().four_filters({to, from + positions.lo * p.in_channels, w, bias, count, p.in_channels,
                               p.out_channels, p.out_channels});
  } else {
    pack_lines(w, args.w, p.in_channels);
    conv_table().four_of_lines({to, from + positions.lo, x.stride(1), w, bias, count, p.in_channels,
                                p.out_channels, space.take<float>(kFilters * count)});
  }
}

}  // namespace

bool conv_forward_narrow(const ConvProblem& p, const ConvArgs& args) {
  if (!is_narrow(p, args) || (!reads_channels(p, args.x) && !in_lines(args.x))) return false;
  const std::int64_t windows = numel_of(p.out);
  const std::int64_t pieces = ceil_div(windows, kPositions);
  parallel_for(p.samples * pieces, threads_for(p.flops()), [&](std::int64_t piece) {
    const std::int64_t first = piece % pieces * kPositions;
    some(p, args, piece / pieces, {first, std::min(first + kPositions, windows)});
  });
  activate(args);
  return true;
}

}  // namespace tessera::cpu
