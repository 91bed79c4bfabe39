// Layouts and windows: where the elements of a local buffer lie in the global index space.
//
// A Segment says that buffer positions [local, local + length) of one dim hold global positions [global, …).
// A layout is a list of segments per dim. What no segment covers lies outside the domain (zero padding, or
// whatever the op wants there); a periodic window has segments that wrap. All of this is arithmetic on
// integers, the same on every rank, without messages.
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

// A sliding window along one dim: output o reads inputs o·stride − pad_lo + dilation·{0 … kernel − 1}.
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t pad_lo = 0;
  std::int64_t pad_hi = 0;
  std::int64_t dilation = 1;
  bool periodic = false;

  std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // (n + pads − reach) / stride + 1, or 0 when the window does not fit.
  std::int64_t output_size(std::int64_t n) const;
  // [lo·s − p, (hi − 1)·s − p + d(k − 1) + 1), not clipped to the domain; empty for an empty output.
  Interval input_of(Interval output) const;
};

// The cut of the output: output o lives where the middle of its window lives (clipped into the domain). Every
// part of `input` must be a single interval.
DimCut window_output_cut(const DimCut& input, const Window& window, std::int64_t n);

// The segments of a buffer that holds input positions `need`, taken from a dim of size n: positions outside
// [0, n) wrap if periodic, else stay uncovered.
std::vector<Segment> window_segments(Interval need, std::int64_t n, bool periodic);

}  // namespace tessera
