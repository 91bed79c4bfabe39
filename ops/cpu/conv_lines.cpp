// Weight gradient of convolutions on channels-last maps, line by line: what a tap of the outer kernel dims
// and a line of outputs have in common with a line of the input is a small matrix product [last kernel dim x
// channels, outputs], worked on where the lines lie. Lines whose windows reach into the padding are copied
// once into a ring of lines with zeros at their ends.
#include <algorithm>

#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_outer.h"
#include "ops/cpu/conv_source.h"
#include "ops/cpu/conv_weights.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPositions = 96;  // outputs at a time: their gradient stays in the first-level cache
constexpr std::int64_t kParts = 8;       // of the lines, each with sums of its own
constexpr double kPartFlops = 1e6;
constexpr std::int64_t kPartBytes = 1 << 20;

inline std::int64_t round_up(std::int64_t n, std::int64_t step) { return ceil_div(n, step) * step; }

// What all jobs share.
template <class T>
struct Lines {
  Lines(const ConvProblem& problem, const ConvBackwardWeightArgs& args)
      : p(problem), a(args), o(outer_dims(problem, args.x, args.dy)), last(problem.spatial - 1) {
    columns = round_up(p.group_out(), blocks_of<T>(conv_table()).width);
    const std::int64_t outputs = p.out[last];
    positions = ceil_div(outputs, ceil_div(outputs, kPositions));
    lines_at_once = std::min(o.out[1], std::max<std::int64_t>(1, kPositions / outputs));
    length = (outputs - 1) * p.stride[last] + p.dilation[last] * (p.kernel[last] - 1) + 1;
    all_lines = p.samples * o.out[0] * o.out[1];
    size = numel_of(p.kernel) * p.group_in() * columns;
  }
  const ConvProblem& p;
  const ConvBackwardWeightArgs& a;
  OuterDims o;
  int last;
  std::int64_t columns = 0;  // outputs channels of a group, filled up to whole vectors
  std::int64_t positions = 0;
  std::int64_t lines_at_once = 0;
  std::int64_t length = 0;  // positions that the windows of a line read
  std::int64_t all_lines = 0;
  std::int64_t size = 0;  // of a group's sums
};

template <class T>
SourceMap<T> input_of(const Lines<T>& l, std::int64_t group) {
  const OuterDims& o = l.o;
  SourceMap<T> m;
  m.channel = channel_step(l.a.x);
  m.data = l.a.x.template data<T>() + group * l.p.group_in() * m.channel;
  m.sample = l.a.x.stride(0);
  m.step = l.a.x.stride(l.last + 2);
  m.size = l.p.in[l.last];
  m.channels = l.p.group_in();
  m.before = l.p.padding_lo[l.last];
  m.length = l.length;
  for (int d = 0; d < 2; ++d) {
    m.outer[d] = o.x_stride[d];
    m.sizes[d] = o.in[d];
    m.span[d] = o.dilation[d] * (o.kernel[d] - 1) + 1;
  }
  m.span[1] += (l.lines_at_once - 1) * o.stride[1];
  m.planes = o.kernel[0] > 1;
  return m;
}

// Lines of one group's sums.
template <class T>
class LineJob {
 public:
  LineJob(const Lines<T>& lines, std::int64_t group, T* sums)
      : l_(lines),
        sums_(sums),
        space_(Workspace::begin()),
        x_(input_of(lines, group), space_),
        dy_channel_(channel_step(lines.a.dy)),
        dy_data_(lines.a.dy.template data<T>() + group * lines.p.group_out() * dy_channel_) {
    const std::int64_t most = l_.lines_at_once;
    dy_ = space_.take<const T*>(most);
    x_lines_ = space_.take<const T*>(most);
    dy_lines_ = space_.take<const T*>(most);
    dy_step_ = l_.a.dy.stride(l_.last + 2);
    if (l_.columns == l_.p.group_out() && dy_channel_ == 1) return;
    dy_step_ = l_.columns;
    filled_ = space_.take<T>(most * l_.p.out[l_.last] * l_.columns);
    std::fill(filled_, filled_ + most * l_.p.out[l_.last] * l_.columns, T(0));
  }

  // Output lines [from, to) in the order of samples and outer dims.
  void run(std::int64_t from, std::int64_t to) {
    const OuterDims& o = l_.o;
    while (from < to) {
      const std::int64_t j = from % o.out[1];
      const std::int64_t i = from / o.out[1] % o.out[0];
      const std::int64_t n = std::min({l_.lines_at_once, to - from, o.out[1] - j});
      lines({from / o.out[1] / o.out[0], i, j}, n);
      from += n;
    }
  }

 private:
  struct At {
    std::int64_t sample, i, j;
  };

  void lines(const At& at, std::int64_t n) {
    const OuterDims& o = l_.o;
    for (std::int64_t q = 0; q < n; ++q) dy_[q] = gradient_line(at, q);
    for (std::int64_t k = 0; k < o.kernel[0]; ++k) {
      const std::int64_t u = at.i * o.stride[0] - o.padding[0] + k * o.dilation[0];
      if (u < 0 || u >= o.in[0]) continue;
      for (std::int64_t m = 0; m < o.kernel[1]; ++m) {
        std::int64_t used = 0;
        for (std::int64_t q = 0; q < n; ++q) {
          const std::int64_t v = (at.j + q) * o.stride[1] - o.padding[1] + m * o.dilation[1];
          if (v < 0 || v >= o.in[1]) continue;
          x_lines_[used] = x_.line(at.sample, u, v);
          dy_lines_[used++] = dy_[q];
        }
        if (used > 0) outer_tap(k * o.kernel[1] + m, used);
      }
    }
  }

  // The output line where it lies, or its copy with the channels filled up.
  const T* gradient_line(const At& at, std::int64_t q) {
    const T* from =
        dy_data_ + at.sample * l_.a.dy.stride(0) + at.i * l_.o.y_stride[0] + (at.j + q) * l_.o.y_stride[1];
    if (filled_ == nullptr) return from;
    const std::int64_t outputs = l_.p.out[l_.last];
    const std::int64_t step = l_.a.dy.stride(l_.last + 2);
    T* to = filled_ + q * outputs * l_.columns;
    for (std::int64_t i = 0; i < outputs; ++i)
      for (std::int64_t c = 0; c < l_.p.group_out(); ++c)
        to[i * l_.columns + c] = from[i * step + c * dy_channel_];
    return to;
  }

  void outer_tap(std::int64_t tap, std::int64_t lines) {
    const ConvProblem& p = l_.p;
    const std::int64_t taps = p.kernel[l_.last];
    const std::int64_t channels = p.group_in();
    // The taps of neighbouring positions follow each other like channels.
    const bool merged = taps == 1 || (p.dilation[l_.last] == 1 && x_.step() == channels);
    const std::int64_t rows = merged ? taps * channels : channels;
    const std::int64_t outputs = p.out[l_.last];
    for (std::int64_t first = 0; first < outputs; first += l_.positions) {
      const std::int64_t positions = std::min(l_.positions, outputs - first);
      for (std::int64_t t = 0; t < (merged ? 1 : taps); ++t) {
        const std::int64_t x_shift = (first * p.stride[l_.last] + t * p.dilation[l_.last]) * x_.step();
        const std::int64_t dy_shift = first * dy_step_;
        for (std::int64_t q = 0; q < lines; ++q) {
          x_lines_[q] += x_shift;
          dy_lines_[q] += dy_shift;
        }
        T* sums = sums_ + (tap * taps + t) * channels * l_.columns;
        blocks_of<T>(conv_table())
            .weight_lines({sums, x_lines_, dy_lines_, lines, positions, rows, l_.columns, l_.columns,
                           p.stride[l_.last] * x_.step(), dy_step_});
        for (std::int64_t q = 0; q < lines; ++q) {
          x_lines_[q] -= x_shift;
          dy_lines_[q] -= dy_shift;
        }
      }
    }
  }

  const Lines<T>& l_;
  T* sums_;
  Workspace& space_;
  SourceLines<T> x_;
  std::int64_t dy_channel_;
  const T* dy_data_;
  const T** dy_ = nullptr;       // of the lines at hand
  const T** x_lines_ = nullptr;  // those of them that a tap sees
  const T** dy_lines_ = nullptr;
  std::int64_t dy_step_ = 0;
  T* filled_ = nullptr;
};

// sums [kernel, channels, columns] as the group's [O / groups, C / groups, kernel].
template <class T>
void write(const Lines<T>& l, const T* sums, std::int64_t group) {
  T* dw = l.a.dw.template data<T>();
  const std::int64_t step = l.a.dw.stride(0);
  for_each_weight_block(l.p, l.a.dw, group, [&](const WeightBlock& b) {
    const T* from =
        sums + ((b.outer * l.p.kernel.back() + b.last) * l.p.group_in() + b.channel) * l.columns + b.first;
    for (std::int64_t i = 0; i < b.count; ++i) dw[b.offset + i * step] = from[i];
  });
}

template <class T>
void run(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  const Lines<T> l(p, args);
  const auto bytes = static_cast<std::int64_t>(sizeof(T)) * l.size * p.groups;
  const std::int64_t parts = std::max<std::int64_t>(
      1, std::min({kParts, l.all_lines, static_cast<std::int64_t>(p.flops() / kPartFlops),
                   kParts * kPartBytes / bytes}));
  const Array memory = Array::empty({p.groups * parts * l.size}, p.dtype);
  T* sums = memory.data<T>();
  parallel_for(p.groups * parts, threads_for(p.flops()), [&](std::int64_t job) {
    const std::int64_t part = job % parts;
    std::fill(sums + job * l.size, sums + (job + 1) * l.size, T(0));
    LineJob<T>(l, job / parts, sums + job * l.size)
        .run(l.all_lines * part / parts, l.all_lines * (part + 1) / parts);
  });
  for (std::int64_t g = 0; g < p.groups; ++g) {
    T* first = sums + g * parts * l.size;
    for (std::int64_t part = 1; part < parts; ++part)
      for (std::int64_t i = 0; i < l.size; ++i) first[i] += first[part * l.size + i];
    write(l, first, g);
  }
}

}  // namespace

bool conv_backward_weight_lines(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  if (p.dtype == DType::F32) {
    run<float>(p, args);
  } else if (p.dtype == DType::F64) {
    run<double>(p, args);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::cpu
