// Group, instance and batch norm: y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps), on [N, C, S]
// data whose statistics belong to whole channels (Wu and He 2018; Ulyanov et al. 2016; Ioffe and Szegedy
// 2015).
//
// The work comes in four parts, because what lies between them may have to travel between ranks: moments of
// the local data; normalising with complete statistics; sums for the gradient; the gradient with complete
// sums. Means come in two terms and variances are taken around them, so that values near 1e4 with deviation 1
// keep their digits in float32. All sums are cut into pieces that do not depend on the number of threads.
//
// An activation may follow in the same pass over memory. Backward then works out its argument again from x
// and the statistics, block by block, so that neither the normalised values nor the argument are ever kept.
#pragma once
#include <vector>

#include "ops/cpu/norm_activation.h"
#include "ops/cpu/norm_eps.h"
#include "runtime/array.h"

namespace tessera::cpu {

// Which statistic a channel of a sample uses. Statistics lie in rows: sample by sample, group by group.
struct ChannelGroups {
  bool per_sample = true;                // false: one set for all samples (batch norm)
  std::int64_t groups = 1;               // of one sample
  std::vector<std::int64_t> of_channel;  // group of every channel
  std::int64_t rows(std::int64_t samples) const { return per_sample ? samples * groups : groups; }
  std::int64_t row(std::int64_t n, std::int64_t c) const {
    return (per_sample ? n * groups : 0) + of_channel[static_cast<std::size_t>(c)];
  }
};

// In what follows x, y, dx, dy are [N, C, S] of one floating type; all with samples in row-major memory,
// equally far apart (strides any, S, 1), or all with channels innermost (strides any, 1, C). weight, bias and
// their gradients are [C] of that type, contiguous, or undefined. Statistics are f32 (f64 for f64),
// contiguous.
bool channels_innermost(const Array& x);
bool row_major_samples(const Array& x);  // the first of these two

// moments [3, rows]: mean in two terms, and the sum of squared deviations. Zeros for a group without
// elements.
struct ChannelMomentsArgs {
  Array moments;
  Array x;
  const ChannelGroups& groups;  // as in the rest: the caller's
};
void channel_moments(const ChannelMomentsArgs& args);

// stats [4, rows]: mean in two terms, variance, number of elements. Complete once the moments in the first
// three rows are those of all of a statistic's `count` elements,
struct FinishStatisticsArgs {
  Array stats;
  double count = 0;
};
void finish_statistics(const FinishStatisticsArgs& args);
// or where means and variances are given, [rows] of any floating types and strides.
struct GivenStatisticsArgs {
  Array stats;
  Array mean;
  Array var;
};
void given_statistics(const GivenStatisticsArgs& args);

// Running statistics [C] of any floating types and strides, moved by `momentum` towards the mean over the
// samples of stats [4, samples, C], of any strides: the running variance towards one of degrees of freedom.
// Either may be undefined. Nothing changes where there were no elements.
struct MoveRunningArgs {
  Array mean;
  Array var;
  Array stats;
  double row = 0;  // elements of a statistic of one sample; 0: there is one set, of all
  double momentum = 0.1;
};
void move_running(const MoveRunningArgs& args);
void check_move_running(const MoveRunningArgs& args);

struct ChannelNormArgs {
  Array y;
  Array x;
  Array stats;
  Array weight;
  Array bias;
  NormEps eps;
  const ChannelGroups& groups;
  NormActivation activation = NormActivation::None;
};
void channel_norm(const ChannelNormArgs& args);

// Whether the sums had better keep dy times the activation's slope for the gradient (`dz` below) than have it
// worked out twice: where a slope costs more than a pass over memory.
bool channel_norm_keeps_slopes(const Array& x, NormActivation activation);

// With x^ = (x - mean) rstd: sums [2, rows] of dy weight and dy weight x^ (undefined: not wanted); dweight
// and dbias are the local sums of dy x^ and dy.
struct ChannelSumsArgs {
  Array sums;
  Array dweight;
  Array dbias;
  Array dy;
  Array x;
  Array stats;
  Array weight;
  NormEps eps;
  const ChannelGroups& groups;
  Array bias = {};
  NormActivation activation = NormActivation::None;
  // f32 and f64 with an activation: takes dy times its slope, which is the dy of a gradient without one. Laid
  // out as x; may be undefined.
  Array dz = {};
};
void channel_norm_sums(const ChannelSumsArgs& args);

// dx = rstd (dy weight - sums[0] / n - x^ sums[1] / n); sums undefined: statistics that do not depend on x.
struct ChannelGradientArgs {
  Array dx;
  Array dy;
  Array x;
  Array stats;
  Array weight;
  Array sums;
  NormEps eps;
  const ChannelGroups& groups;
  Array bias = {};
  NormActivation activation = NormActivation::None;
};
void channel_norm_gradient(const ChannelGradientArgs& args);

}  // namespace tessera::cpu
