// Layouts and windows: where the elements of a local buffer lie in the global index space.
//
// A Segment says that buffer positions [local, local + length) of one dim hold global positions [global, …).
// A layout is a list of segments per dim. What no segment covers lies outside the domain (zero padding, or
// whatever the op wants there); where a window's padding is taken from the domain itself, segments beyond its
// ends say from which positions. All of this is arithmetic on integers, the same on every rank, without
// messages.
#pragma once
#include "mesh/spec.h"

namespace tessera {

struct Segment {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t length = 0;
};

struct LocalLayout {
  std::vector<std::vector<Segment>> dims;
  Dims sizes;  // of the local buffer
};

// What `rank` holds under a spec.
LocalLayout layout_of(const ShardSpec& spec, int rank);

// Where what lies beyond the ends of a dim comes from: nowhere; from the other end; mirrored at the first and
// the last position, which are not repeated; from the first and the last position. PyTorch's names.
enum class PaddingMode : std::uint8_t { Zeros, Circular, Reflect, Replicate };

// A sliding window along one dim: output o reads inputs o·stride − pad_lo + dilation·{0 … kernel − 1}.
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t pad_lo = 0;
  std::int64_t pad_hi = 0;
  std::int64_t dilation = 1;
  PaddingMode mode = PaddingMode::Zeros;

  bool operator==(const Window&) const = default;
  bool reads_beyond() const { return mode != PaddingMode::Zeros; }  // what it reads there are own positions
  std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // (n + pads − reach) / stride + 1, or 0 when the window does not fit.
  std::int64_t output_size(std::int64_t n) const;
  // [lo·s − p, (hi − 1)·s − p + d(k − 1) + 1), not clipped to the domain; empty for an empty output.
  Interval input_of(Interval output) const;
};

// The cut of the output: output o lives where the middle of its window lives (clipped into the domain). Every
// part of `input` must be a single interval.
DimCut window_output_cut(const DimCut& input, const Window& window, std::int64_t n);

// The segments of a buffer that holds input positions `need`, taken from a dim of size n, in order: positions
// outside [0, n) come from where `mode` says, or stay uncovered. Mirrored ones are segments of one position.
std::vector<Segment> window_segments(Interval need, std::int64_t n, PaddingMode mode);

}  // namespace tessera
