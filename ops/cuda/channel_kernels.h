// The channel norms on the device (ops/cpu/channel_norm.h says what is computed): sums in double by parts
// that depend on sizes alone, joined in order.
#pragma once
#include "ops/cpu/norm_activation.h"
#include "ops/cpu/norm_eps.h"
#include "ops/cuda/column_cuts.h"
#include "runtime/cuda/copy_kernels.h"
#include "runtime/portable.h"

namespace tessera::cuda {

// [N, C, S] data and which statistic a channel of a sample uses.
struct ChannelData {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t row = 0;
  bool innermost = false;  // the channels; else contiguous
  DType dtype = DType::F32;
  bool per_sample = true;
  std::int64_t groups = 1;  // of one sample
  // Group of channel c: (c + first) / per, or as the table says, which lies on the device.
  std::int64_t first = 0;
  std::int64_t per = 1;
  const std::int64_t* table = nullptr;

  TS_PORTABLE std::int64_t sample_size() const { return channels * row; }
  TS_PORTABLE std::int64_t numel() const { return samples * channels * row; }
  TS_PORTABLE std::int64_t statistics() const { return per_sample ? samples * groups : groups; }
  // Samples whose channels have numbers of their own.
  TS_PORTABLE std::int64_t sets() const { return per_sample ? samples : 1; }
  TS_DEVICE std::int64_t group(std::int64_t c) const {
    return table != nullptr ? Ptr<const std::int64_t>(table)[c] : (c + first) / per;
  }
  // Channels [lowest(g), highest(g)) may be of group g; without a table all of them are.
  TS_PORTABLE std::int64_t lowest(std::int64_t g) const {
    return table != nullptr ? 0 : inside(g * per - first);
  }
  TS_PORTABLE std::int64_t highest(std::int64_t g) const {
    return table != nullptr ? channels : inside((g + 1) * per - first);
  }
  TS_PORTABLE std::int64_t inside(std::int64_t c) const { return c < 0 ? 0 : c > channels ? channels : c; }
};
// An operand: element 0, and how far samples lie apart.
struct ChannelOperand {
  void* data = nullptr;
  std::int64_t step = 0;
};

// How the data are cut for sums: into columns, or into runs of memory.
struct ChannelCuts {
  bool by_columns = false;
  ColumnCuts columns;       // then
  std::int64_t spread = 1;  // columns of a channel
  std::int64_t runs = 0;    // else: of a sample
  std::int64_t pieces = 1;  // of a run
  static constexpr std::int64_t kPiece = 4096;

  std::int64_t numbers() const { return by_columns ? columns.numbers() : runs_of(samples); }
  std::int64_t runs_of(std::int64_t n) const { return n * runs * pieces; }
  std::int64_t samples = 0;
};
// For moments a run is what belongs to one statistic, for sums a channel.
ChannelCuts moment_cuts(const ChannelData& d, bool samples_adjoin);
ChannelCuts sum_cuts(const ChannelData& d, bool samples_adjoin);

// moments [3, statistics]; partial: 3 numbers() doubles.
struct ChannelMoments {
  ChannelData data;
  ChannelOperand x;
  void* moments = nullptr;
  ChannelCuts cuts;
  double* partial = nullptr;
};
void channel_moments(const ChannelMoments& args, StreamHandle stream);

// A running statistic [C] of any floating type; stats [4, samples, C] of f32 or f64 at any strides
// (cpu::MoveRunningArgs).
struct RunningStatistic {
  Elements running;
  std::int64_t stride = 1;
  std::int64_t channels = 0;
  Elements stats;
  std::int64_t samples = 0;
  std::int64_t strides[3] = {};
  double row = 0;
  double momentum = 0;
  bool variance = false;
};
void move_running(const RunningStatistic& args, StreamHandle stream);

// What channels are mapped with. Null: not given. numbers: 7 sets() channels elements of the accumulating
// type, where they are worked out.
struct ChannelNumbers {
  const void* stats = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* sums = nullptr;
  cpu::NormEps eps = {};
  cpu::NormActivation activation = cpu::NormActivation::None;
  void* numbers = nullptr;
};
struct ChannelMap {
  ChannelData data;
  ChannelNumbers numbers;
  ChannelOperand out;
  ChannelOperand x;
  ChannelOperand dy;  // of the gradient
};
void channel_norm(const ChannelMap& args, StreamHandle stream);
void channel_gradient(const ChannelMap& args, StreamHandle stream);

// partial: 2 numbers() doubles; local: 2 shares channels doubles.
struct ChannelSumsOf {
  ChannelData data;
  ChannelNumbers numbers;
  ChannelOperand x;
  ChannelOperand dy;
  void* sums = nullptr;
  void* dweight = nullptr;
  void* dbias = nullptr;
  ChannelCuts cuts;
  double* partial = nullptr;
  double* local = nullptr;
  std::int64_t shares = 1;  // samples, or 1 where all are summed together
};
void channel_sums(const ChannelSumsOf& args, StreamHandle stream);

}  // namespace tessera::cuda
