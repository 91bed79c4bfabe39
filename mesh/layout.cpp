#include "mesh/layout.h"

#include "mesh/intervals.h"

namespace tessera {

LocalLayout layout_of(const ShardSpec& spec, int rank) {
  LocalLayout layout;
  layout.sizes = spec.local_sizes(rank);
  layout.dims.resize(static_cast<std::size_t>(spec.dim()));
  for (int d = 0; d < spec.dim(); ++d) {
    std::int64_t at = 0;
    for (Interval i : spec.intervals(d, rank)) {
      if (i.empty()) continue;
      layout.dims[static_cast<std::size_t>(d)].push_back({i.lo, at, i.length()});
      at += i.length();
    }
  }
  return layout;
}

std::int64_t Window::output_size(std::int64_t n) const {
  const std::int64_t room = n + pad_lo + pad_hi - reach();
  return room < 0 ? 0 : room / stride + 1;
}

Interval Window::input_of(Interval output) const {
  if (output.empty()) return {0, 0};
  return {output.lo * stride - pad_lo, (output.hi - 1) * stride - pad_lo + reach()};
}

DimCut window_output_cut(const DimCut& input, const Window& window, std::int64_t n) {
  const std::int64_t outputs = window.output_size(n);
  // o's middle is o·s + shift; o belongs to [lo, hi) when lo ≤ middle < hi, the outermost shards take what
  // sticks out.
  const std::int64_t shift = window.dilation * (window.kernel - 1) / 2 - window.pad_lo;
  auto first_at = [&](std::int64_t position) {
    return std::clamp<std::int64_t>(ceil_div(position - shift, window.stride), 0, outputs);
  };
  DimCut cut;
  cut.axes = input.axes;
  for (const Intervals& part : input.parts) {
    if (part.empty() || part.front().empty()) {
      cut.parts.emplace_back();
      continue;
    }
    const Interval own = part.front();
    const std::int64_t lo = own.lo == 0 ? 0 : first_at(own.lo);
    const std::int64_t hi = own.hi == n ? outputs : first_at(own.hi);
    cut.parts.push_back({{lo, std::max(lo, hi)}});
  }
  // A dim of size 0 has no shard with elements, but padding may still make outputs: the first rank takes
  // them.
  if (n == 0 && outputs > 0) cut.parts.front() = {{0, outputs}};
  return cut;
}

namespace {

// The position of [0, n) that is read at `at`, and how many follow it there in order.
struct Run {
  std::int64_t global = 0;
  std::int64_t length = 1;
};
Run run_at(std::int64_t at, std::int64_t n, PaddingMode mode) {
  if (mode == PaddingMode::Replicate) return at < 0 ? Run{0, 1} : at < n ? Run{at, n - at} : Run{n - 1, 1};
  const std::int64_t period = mode == PaddingMode::Circular || n == 1 ? n : 2 * (n - 1);
  const std::int64_t global = ((at % period) + period) % period;
  return global < n ? Run{global, n - global} : Run{period - global, 1};
}

}  // namespace

std::vector<Segment> window_segments(Interval need, std::int64_t n, PaddingMode mode) {
  std::vector<Segment> segments;
  if (need.empty() || n == 0) return segments;
  if (mode == PaddingMode::Zeros) {
    const Interval inside = intersect(need, {0, n});
    if (!inside.empty()) segments.push_back({inside.lo, inside.lo - need.lo, inside.length()});
    return segments;
  }
  for (std::int64_t at = need.lo; at < need.hi;) {
    const Run run = run_at(at, n, mode);
    const std::int64_t length = std::min(run.length, need.hi - at);
    segments.push_back({run.global, at - need.lo, length});
    at += length;
  }
  return segments;
}

}  // namespace tessera
