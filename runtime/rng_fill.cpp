// Random values over a box of a global tensor: runs of consecutive global indices are drawn block by block.
#include <algorithm>
#include <numeric>

#include "runtime/error.h"
#include "runtime/rng_device.h"
#include "runtime/rng_kernels.h"
#include "runtime/rng_math.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

using detail::below;
using detail::kWordsPerBlock;
using detail::round_to;

// Elements drawn at a time: their words stay in the nearest cache.
constexpr std::int64_t kRun = 2048;
// Along memory that lies across: as many as leave the lines of all of them in the nearest cache.
constexpr std::int64_t kRunAcross = 128;
constexpr std::int64_t kWords = kRun + 2 * kWordsPerBlock;

// A run of consecutive global indices along the last dim.
struct Run {
  std::int64_t local = 0;
  std::int64_t global = 0;
  std::int64_t length = 0;
};

// The loops over one array (and a second one of the same sizes, for dropout), dims joined where both the
// index space and the layouts allow it.
struct BoxWalk {
  int dims = 0;
  std::array<std::int64_t, Dims::kMax> size{1};
  std::array<std::int64_t, Dims::kMax> out_stride{};
  std::array<std::int64_t, Dims::kMax> in_stride{};
  std::array<std::int64_t, Dims::kMax> global_size{1};
  std::array<std::vector<Interval>, Dims::kMax> intervals;
  // For all dims but the last: the global index that each local coordinate adds.
  std::array<std::vector<std::int64_t>, Dims::kMax> base;
  std::vector<Run> runs;
};

void check_box(const char* op, const Array& out, const IndexBox& box) {
  TS_CHECK(out.defined(), op, "the target is undefined");
  TS_CHECK(is_floating(out.dtype()), op, "the target is {}, allowed are f32, f64, bf16 and f16",
           name_of(out.dtype()));
  const int n = out.dim();
  TS_CHECK(box.global_sizes.size() == n && static_cast<int>(box.intervals.size()) == n, op,
           "a box of {} dims with {} interval lists was given for an array of {} dims",
           box.global_sizes.size(), box.intervals.size(), n);
  TS_CHECK(box.index_offset >= 0, op, "index offset {} was given, allowed are 0 and more", box.index_offset);
  for (int d = 0; d < n; ++d) {
    std::int64_t length = 0;
    for (const Interval& i : box.intervals[static_cast<std::size_t>(d)]) {
      TS_CHECK(i.lo >= 0 && i.lo <= i.hi && i.hi <= box.global_sizes[d], op,
               "interval [{}, {}) along dim {} is outside the global shape {}", i.lo, i.hi, d,
               box.global_sizes.str());
      length += i.length();
    }
    TS_CHECK(length == out.size(d), op, "the intervals along dim {} hold {} elements, the array {}", d,
             length, out.size(d));
  }
}

void add_dim(BoxWalk& w, int d, const Array& out, const Array& in, const IndexBox& box) {
  const std::vector<Interval>& list = box.intervals[static_cast<std::size_t>(d)];
  const std::int64_t size = out.size(d);
  const std::int64_t global = box.global_sizes[d];
  auto i = static_cast<std::size_t>(w.dims);
  if (w.dims > 0 && list.size() == 1 && size == global && w.out_stride[i - 1] == out.stride(d) * size &&
      w.in_stride[i - 1] == in.stride(d) * size) {
    --i;  // the dim before goes on in this one, in memory and in the index space
    w.size[i] *= size;
    w.global_size[i] *= global;
    for (Interval& interval : w.intervals[i]) interval = {interval.lo * global, interval.hi * global};
  } else {
    ++w.dims;
    w.size[i] = size;
    w.global_size[i] = global;
    w.intervals[i] = list;
  }
  w.out_stride[i] = out.stride(d);
  w.in_stride[i] = in.stride(d);
}

BoxWalk plan_box(const Array& out, const Array& in, const IndexBox& box) {
  BoxWalk w;
  for (int d = 0; d < out.dim(); ++d) add_dim(w, d, out, in, box);
  if (w.dims == 0) {
    w.dims = 1;
    w.intervals[0] = {{0, 1}};
  }
  const auto last = static_cast<std::size_t>(w.dims - 1);
  std::int64_t weight = w.global_size[last];
  for (std::size_t d = last; d-- > 0;) {
    for (const Interval& i : w.intervals[d])
      for (std::int64_t g = i.lo; g < i.hi; ++g) w.base[d].push_back(g * weight);
    weight *= w.global_size[d];
  }
  std::int64_t local = 0;
  const std::int64_t longest = w.out_stride[last] == 1 ? kRun : kRunAcross;
  for (const Interval& i : w.intervals[last])
    for (std::int64_t g = i.lo; g < i.hi; g += longest) {
      const std::int64_t length = std::min(longest, i.hi - g);
      w.runs.push_back({local, g, length});
      local += length;
    }
  return w;
}

// One run of an array: n elements, the first with global element index `index`.
template <class T>
struct Piece {
  T* out = nullptr;
  const T* in = nullptr;
  std::int64_t n = 0;
  std::int64_t index = 0;
  std::int64_t out_stride = 1;
  std::int64_t in_stride = 1;
};

// Calls f(Piece<T>) for every run of the box, from several threads when it is large.
template <class T, class F>
void for_each_run(const Array& out, const Array& in, const IndexBox& box, F f) {
  if (out.numel() == 0 || out.device() == Device::Meta) return;
  const BoxWalk w = plan_box(out, in, box);
  const auto last = static_cast<std::size_t>(w.dims - 1);
  const auto runs = static_cast<std::int64_t>(w.runs.size());
  const std::int64_t outer = out.numel() / w.size[last];
  // Rows that lie across memory are walked together, run by run: neighbours share its lines.
  const bool across = w.out_stride[last] != 1;
  parallel_ranges(outer * runs, out.numel(), [&](std::int64_t lo, std::int64_t hi) {
    for (std::int64_t job = lo; job < hi; ++job) {
      Piece<T> piece{out.data<T>(), in.data<T>(), 0, box.index_offset, w.out_stride[last], w.in_stride[last]};
      std::int64_t row = across ? job % outer : job / runs;
      for (std::size_t d = last; d-- > 0; row /= w.size[d]) {
        const std::int64_t at = row % w.size[d];
        piece.index += w.base[d][static_cast<std::size_t>(at)];
        piece.out += at * w.out_stride[d];
        piece.in += at * w.in_stride[d];
      }
      const Run& run = w.runs[static_cast<std::size_t>(across ? job / outer : job % runs)];
      piece.n = run.length;
      piece.index += run.global;
      piece.out += run.local * piece.out_stride;
      piece.in += run.local * piece.in_stride;
      f(piece);
    }
  });
}

// The words of elements [index, index + n), n <= kRun: answers where the first one lies in `words`, which
// holds whole blocks.
std::int64_t draw(RngKey key, std::int64_t index, std::int64_t n, std::uint64_t lane, std::uint32_t* words) {
  const std::int64_t first = index / kWordsPerBlock;
  const std::int64_t blocks = (index + n - 1) / kWordsPerBlock - first + 1;
  detail::rng_kernels().words(key, static_cast<std::uint64_t>(first) | lane << detail::kLaneShift, blocks,
                              words);
  return index - first * kWordsPerBlock;
}

template <class T>
void uniform_run(const Piece<T>& p, RngKey key, double lo, double hi) {
  std::uint32_t words[kWords];
  std::uint32_t more[kWords];
  constexpr bool kLong = std::is_same_v<T, double>;
  const std::int64_t at = draw(key, p.index, p.n, 0, words);
  if constexpr (kLong) draw(key, p.index, p.n, 1, more);
  const double width = hi - lo;
  const T most = below<T>(hi);
  for (std::int64_t i = 0; i < p.n; ++i) {
    double u = 0;
    if constexpr (kLong)
      u = detail::unit_53(words[at + i], more[at + i]);
    else
      u = detail::unit_24(words[at + i]);
    const T value = round_to<T>(std::fma(u, width, lo));
    p.out[i * p.out_stride] = static_cast<double>(value) < hi ? value : most;
  }
}

// Elements [index, index + n) of a stream, n <= kRun; what is drawn again has other lanes.
struct Elements {
  RngKey key;
  std::int64_t index = 0;
  std::int64_t n = 1;
  std::uint64_t lane = 0;
};
constexpr std::int64_t kNormalRoom = kRun + 2;  // values come in pairs, whose first or last may be not wanted

// Normal values of the elements in order; they lie in `room`, from the answer on.
const double* normals(const Elements& e, detail::NormalScale scale, double* room) {
  std::uint32_t words[kWords];
  const std::int64_t at = draw(e.key, e.index, e.n, e.lane, words);
  const std::int64_t before = at % 2;
  detail::rng_kernels().normals(words + at - before, (before + e.n + 1) / 2, scale, room);
  return room + before;
}

// Draws one element again until it lies within the bounds.
double redraw(RngKey key, std::int64_t index, const TruncatedNormal& t) {
  constexpr std::uint64_t kFirstLane = 2;
  constexpr std::uint64_t kLastLane = 250;
  double value = 0;
  for (std::uint64_t lane = kFirstLane; lane <= kLastLane; ++lane) {
    double room[2];
    value = *normals({key, index, 1, lane}, {t.mean, t.deviation}, room);
    if (value >= t.lo && value <= t.hi) return value;
  }
  return std::clamp(value, t.lo, t.hi);
}

template <class T>
void dropout_run(const Piece<T>& p, RngKey key, std::uint64_t threshold, double scale) {
  // float arithmetic for f32, bf16 and f16, double for f64, like every elementwise operation.
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::uint32_t words[kWords];
  const std::int64_t at = draw(key, p.index, p.n, 0, words);
  const auto factor = static_cast<A>(scale);
  const auto limit = static_cast<std::uint32_t>(threshold);  // p < 1 here: it fits
  const std::uint32_t* w = words + at;
  if constexpr (std::is_same_v<T, float>) {
    if (p.out_stride == 1 && p.in_stride == 1)
      return detail::rng_kernels().drop(p.out, p.in, w, p.n, limit, factor);
  }
  for (std::int64_t i = 0; i < p.n; ++i) {
    const A value = static_cast<A>(p.in[i * p.in_stride]) * factor;
    p.out[i * p.out_stride] = round_to<T>(w[i] >= limit ? value : A{0});
  }
}

// On a device that is not the CPU its kernel does it.
bool works_elsewhere(const RandomFill& fill) {
  if (fill.out.device() == Device::Cpu) return false;
  if (fill.out.numel() > 0) random_fill_kernel(fill.out.device(), fill);
  fill.out.bump_version();
  return true;
}

}  // namespace

IndexBox whole_box(const Dims& sizes, std::int64_t index_offset) {
  IndexBox box{sizes, {}, index_offset};
  for (std::int64_t size : sizes) box.intervals.push_back({{0, size}});
  return box;
}

Kernel<void(const RandomFill&)> random_fill_kernel{"random_fill", nullptr};

void fill_uniform(const Array& out, const IndexBox& box, RngKey key, double lo, double hi) {
  check_box("fill_uniform", out, box);
  TS_CHECK(lo < hi, "fill_uniform", "the interval [{}, {}) is empty", lo, hi);
  if (works_elsewhere({out, out, box, key, RandomKind::Uniform, lo, hi})) return;
  dispatch_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_run<T>(out, out, box, [&](const Piece<T>& p) { uniform_run(p, key, lo, hi); });
  });
  out.bump_version();
}

void fill_normal(const Array& out, const IndexBox& box, RngKey key, double mean, double deviation) {
  check_box("fill_normal", out, box);
  TS_CHECK(deviation >= 0, "fill_normal", "the deviation is {}, allowed are 0 and more", deviation);
  if (works_elsewhere({out, out, box, key, RandomKind::Normal, mean, deviation})) return;
  dispatch_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_run<T>(out, out, box, [&](const Piece<T>& p) {
      double room[kNormalRoom];
      const double* values = normals({key, p.index, p.n}, {mean, deviation}, room);
      for (std::int64_t i = 0; i < p.n; ++i) p.out[i * p.out_stride] = round_to<T>(values[i]);
    });
  });
  out.bump_version();
}

void fill_truncated_normal(const Array& out, const IndexBox& box, RngKey key, const TruncatedNormal& t) {
  check_box("fill_truncated_normal", out, box);
  TS_CHECK(t.deviation > 0 && t.lo < t.hi, "fill_truncated_normal",
           "deviation {} and bounds [{}, {}] were given, allowed are a deviation above 0 and lo < hi",
           t.deviation, t.lo, t.hi);
  if (works_elsewhere({out, out, box, key, RandomKind::TruncatedNormal, t.mean, t.deviation, t.lo, t.hi}))
    return;
  dispatch_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_run<T>(out, out, box, [&](const Piece<T>& p) {
      double room[kNormalRoom];
      const double* values = normals({key, p.index, p.n}, {t.mean, t.deviation}, room);
      for (std::int64_t i = 0; i < p.n; ++i) {
        double value = values[i];
        if (value < t.lo || value > t.hi) value = redraw(key, p.index + i, t);
        p.out[i * p.out_stride] = round_to<T>(value);
      }
    });
  });
  out.bump_version();
}

void dropout_apply(const Array& out, const Array& x, const IndexBox& box, RngKey key, double p) {
  check_box("dropout", out, box);
  TS_CHECK(x.defined() && x.sizes() == out.sizes() && x.dtype() == out.dtype(), "dropout",
           "input and target must have equal shape and dtype");
  TS_CHECK(p >= 0 && p <= 1, "dropout", "p is {}, allowed are 0 to 1", p);
  const std::uint64_t threshold = detail::drop_threshold(p);
  if (threshold >> 32U != 0) {
    out.zero_();  // p = 1 keeps nothing, and 1 / (1 - p) is no number
    return;
  }
  if (works_elsewhere({out, x, box, key, RandomKind::Dropout, p, 1.0 / (1.0 - p)})) return;
  dispatch_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_run<T>(out, x, box,
                    [&](const Piece<T>& piece) { dropout_run(piece, key, threshold, 1.0 / (1.0 - p)); });
  });
  out.bump_version();
}

}  // namespace tessera
