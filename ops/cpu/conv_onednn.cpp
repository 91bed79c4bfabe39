#include <algorithm>
#include <functional>

#include "ops/cpu/conv_onednn_plan.h"
#include "ops/cpu/parallel.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

constexpr double kPieceFlops = 3e8;                         // between two looks at the progress hook
constexpr std::int64_t kSlabBytes = std::int64_t{1} << 19;  // of outputs per thread: a share of its own cache

// True if the samples lie channels-last without gaps; `whole` says whether the samples follow each other too.
bool is_channels_last(const Array& a, bool& whole) {
  const Dims wanted = channels_last_strides(a.sizes());
  for (int d = 1; d < a.dim(); ++d)
    if (a.size(d) != 1 && a.stride(d) != wanted[d]) return false;
  whole = a.size(0) == 1 || a.stride(0) == wanted[0];
  return true;
}

// An image operand as oneDNN can take it: as it lies, or a channels-last copy.
struct Image {
  Array data;
  bool copied = false;
  bool whole = true;
  std::int64_t sample_bytes() const { return data.stride(0) * size_of(data.dtype()); }
};
Image image_of(const Array& a, bool with_values) {
  Image image{a, false, true};
  if (is_channels_last(a, image.whole)) return image;
  image = {Array::empty_strided(a.sizes(), channels_last_strides(a.sizes()), a.dtype(), Device::Cpu), true,
           true};
  if (with_values) image.data.copy_(a);
  return image;
}

// Windows that end a stride or more before the input, or `any` time before it: oneDNN must not see that part.
// Tells whether x was cut.
bool drop_unused(ConvProblem& p, Array& x, bool any = false) {
  bool dropped = false;
  for (int d = 0; d < p.spatial; ++d) {
    if (p.reach_hi[d] > (any ? -1 : -p.stride[d])) continue;
    p.in[d] += p.reach_hi[d];
    x = x.slice(d + 2, 0, p.in[d]);
    p.reach_hi[d] = 0;
    dropped = true;
  }
  return dropped;
}
// False for f64, and where windows lie in the padding alone along some dim; oneDNN refuses both.
bool acceptable(const ConvProblem& p) {
  if (p.dtype == DType::F64 || p.dtype == DType::F16) return false;
  for (int d = 0; d < p.spatial; ++d)
    if (p.in[d] + p.reach_hi[d] <= 0) return false;
  return true;
}

// A kernel of one element that strides reads every so many-th position: those alone are a problem of
// stride 1. (oneDNN 2023.2's AVX2 weight gradient with strides writes beyond its scratchpad.) False: padding
// is in the way.
bool take_strided(ConvProblem& p, Array& x) {
  const auto ones = [](const Dims& d) {
    return std::all_of(d.begin(), d.end(), [](auto v) { return v == 1; });
  };
  if (!ones(p.kernel) || ones(p.stride)) return true;
  for (int d = 0; d < p.spatial; ++d)
    if (p.padding_lo[d] > 0 || p.reach_hi[d] > 0) return false;
  for (int d = 0; d < p.spatial; ++d) {
    x = x.slice(d + 2, 0, p.out[d], p.stride[d]);
    p.in[d] = p.out[d];
    p.stride[d] = 1;
    p.reach_hi[d] = 0;
  }
  return true;
}

// Memory for an operand in the primitive's layout; nothing where the caller's is right.
Array room_for(const Operand& operand) {
  return operand.reorder ? Array::empty({(operand.bytes + 3) / 4}, DType::F32) : Array();
}
// The operand as the primitive reads it.
const void* converted(const Operand& operand, const void* data, const Array& room) {
  if (!operand.reorder) return data;
  operand.reorder->run({data, room.raw()});
  return room.raw();
}
// Where the primitive writes the operand, and what brings it to its place.
const void* target(const Operand& operand, const void* data, const Array& room) {
  return operand.reorder ? room.raw() : data;
}
void give_back(const Operand& operand, const Array& room, const void* data) {
  if (operand.reorder) operand.reorder->run({room.raw(), data});
}

struct ImagePass {
  WantedConv want;
  Image x;
  Image y;
  Array w;
  Array bias;
};

void run_piece(ConvPrimitive& plan, const ImagePass& run, const void* w, std::int64_t n) {
  const char* x = static_cast<const char*>(run.x.data.raw()) + n * run.x.sample_bytes();
  const char* y = static_cast<const char*>(run.y.data.raw()) + n * run.y.sample_bytes();
  const bool forward = run.want.pass == ConvPass::Forward;
  const Array x_room = room_for(plan.x);
  const Array y_room = room_for(plan.y);
  const void* cx = forward ? converted(plan.x, x, x_room) : target(plan.x, x, x_room);
  const void* cy = forward ? target(plan.y, y, y_room) : converted(plan.y, y, y_room);
  if (run.want.bias) {
    plan.conv->run({cx, w, cy, run.bias.raw()});
  } else {
    plan.conv->run({cx, w, cy});
  }
  if (forward) {
    give_back(plan.y, y_room, y);
  } else {
    give_back(plan.x, x_room, x);
  }
}

// Forward or data gradient: samples are independent, so they may be taken in pieces. `after`, if any, is
// called with the first sample of a piece and their number.
using AfterPiece = std::function<void(std::int64_t, std::int64_t)>;
bool run_images(const ConvProblem& p, ImagePass& run, const AfterPiece& after = nullptr) {
  std::int64_t step = p.samples;
  if (!run.x.whole || !run.y.whole) {
    step = 1;
  } else if (p.flops() > kPieceFlops) {
    step = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kPieceFlops / p.flops() * static_cast<double>(p.samples)));
  }
  run.want.samples = step;
  if (find_conv(p, run.want, run.w) == nullptr) return false;
  run.want.samples = p.samples % step;
  if (run.want.samples != 0 && find_conv(p, run.want, run.w) == nullptr) return false;
  Array w_room;
  const void* w = nullptr;
  for (std::int64_t n = 0; n < p.samples; n += step) {
    if (n > 0) poll_progress();
    const std::int64_t samples = std::min(step, p.samples - n);
    const bool first_of_its_kind = n == 0 || samples != run.want.samples;
    run.want.samples = samples;
    ConvPrimitive* plan = find_conv(p, run.want, run.w);
    if (first_of_its_kind) {
      w_room = room_for(plan->w);
      w = converted(plan->w, run.w.raw(), w_room);
    }
    run_piece(*plan, run, w, n);
    if (after) after(n, samples);
  }
  return true;
}

// Whether every kernel position of the last dim meets the input somewhere. (oneDNN 2023.2's AMX weight
// gradient takes memory that nobody wrote for the gradient of one that meets padding alone.)
bool all_taps_meet_input(const ConvProblem& p) {
  const int d = p.spatial - 1;
  for (std::int64_t t = 0; t < p.kernel[d]; ++t) {
    const std::int64_t at = t * p.dilation[d] - p.padding_lo[d];  // what the first output sees
    const std::int64_t first = at < 0 ? (-at + p.stride[d] - 1) / p.stride[d] : 0;
    if (first >= p.out[d] || at + first * p.stride[d] >= p.in[d]) return false;
  }
  return true;
}

// Whether dims before the last have kernels without gaps. (oneDNN 2023.2's bf16 weight gradient for groups of
// few channels, and for any on processors without AMX, adds up rows that nobody wrote where they have gaps.)
bool outer_kernel_is_dense(const ConvProblem& p) {
  for (int d = 0; d + 1 < p.spatial; ++d)
    if (p.dilation[d] > 1 && p.kernel[d] > 1) return false;
  return true;
}

// One array of samples that follow each other: the weights' gradient sums over all of them in one call.
void make_whole(Image& image) {
  if (image.whole) return;
  const Array dense = Array::empty_strided(image.data.sizes(), channels_last_strides(image.data.sizes()),
                                           image.data.dtype(), Device::Cpu);
  dense.copy_(image.data);
  image.data = dense;
}

// The problem of outputs [lo, hi) along the first spatial dim, and the rows of the input that they read.
struct Slab {
  ConvProblem problem;
  Interval in;
};
Slab slab_of(const ConvProblem& p, std::int64_t lo, std::int64_t hi) {
  const std::int64_t begin = lo * p.stride[0] - p.padding_lo[0];
  const std::int64_t end = (hi - 1) * p.stride[0] - p.padding_lo[0] + p.dilation[0] * (p.kernel[0] - 1) + 1;
  Slab s{p, intersect({begin, end}, {0, p.in[0]})};
  s.problem.in[0] = s.in.length();
  s.problem.out[0] = hi - lo;
  s.problem.padding_lo[0] = std::max<std::int64_t>(0, -begin);
  s.problem.reach_hi[0] = std::max<std::int64_t>(0, end - p.in[0]);
  return s;
}

// How many outputs along the first spatial dim are worked out before their activation, so that it finds them
// in cache; 0: all. Every slab brings the weights into the primitive's order again, so they must be small.
std::int64_t slab_rows(const ConvProblem& p, const Array& w) {
  const std::int64_t bytes = kSlabBytes * threads_for(p.flops());
  const std::int64_t row = p.out_channels * numel_of(p.out) / p.out[0] * size_of(p.dtype);
  const std::int64_t rows = std::max<std::int64_t>(1, bytes / row);
  if (row > 2 * bytes || 2 * rows >= p.out[0] || 4 * w.numel() * size_of(p.dtype) > bytes) return 0;
  const auto reads = [&](const Slab& s) { return s.in.length() > 0 && acceptable(s.problem); };
  const std::int64_t last = (p.out[0] - 1) / rows * rows;
  return reads(slab_of(p, 0, rows)) && reads(slab_of(p, last, p.out[0])) ? rows : 0;
}

// Forward, followed by an activation that oneDNN does not do as we do.
bool run_activated(const ConvProblem& p, ImagePass& run, const ConvArgs& args) {
  const auto activated = [&](ImagePass& pass, const ConvProblem& problem, const ConvArgs& part) {
    return run_images(problem, pass, [&](std::int64_t n, std::int64_t samples) {
      ConvArgs piece = part;
      piece.y = part.y.slice(0, n, samples);
      piece.z = part.given().slice(0, n, samples);
      activate(piece);
    });
  };
  const std::int64_t rows = slab_rows(p, args.w);
  if (rows == 0) return activated(run, p, args);
  for (std::int64_t lo = 0; lo < p.out[0]; lo += rows) {
    const std::int64_t count = std::min(rows, p.out[0] - lo);
    const Slab s = slab_of(p, lo, lo + count);
    ConvArgs part = args;
    part.y = args.y.slice(2, lo, count);
    part.z = args.given().slice(2, lo, count);
    ImagePass pass = run;
    pass.x = image_of(run.x.data.slice(2, s.in.lo, s.in.length()), true);
    pass.y = image_of(part.z, false);
    if (!activated(pass, s.problem, part)) return false;
    poll_progress();
  }
  return true;
}

}  // namespace

bool conv_forward_onednn(const ConvProblem& problem, const ConvArgs& args, bool any) {
  if (!acceptable(problem)) return false;
  ConvProblem p = problem;
  Array x = args.x;
  drop_unused(p, x);
  const bool bias = args.bias.defined();
  ImagePass run{{ConvPass::Forward, any, 0, bias},
                image_of(x, true),
                image_of(args.given(), false),
                args.w,
                bias ? args.bias.contiguous() : Array()};
  if (means_ours(args.activation) && !args.z.defined()) {
    run.want.activation = args.activation;
    if (run_images(p, run)) {
      if (run.y.copied) args.y.copy_(run.y.data);
      return true;
    }
    run.want.activation = Activation::None;
  }
  if (args.activation != Activation::None && !run.y.copied) return run_activated(p, run, args);
  if (!run_images(p, run)) return false;
  if (run.y.copied) {
    args.given().copy_(run.y.data);
    activate(args);
  }
  return true;
}

bool conv_backward_data_onednn(const ConvProblem& problem, const ConvBackwardDataArgs& args, bool any) {
  if (!acceptable(problem)) return false;
  ConvProblem p = problem;
  Array dx = args.dx;
  // oneDNN 2023.2's AMX data gradient of volumes writes only parts of planes that no window reads.
  if (drop_unused(p, dx, p.dtype == DType::BF16)) args.dx.zero_();
  ImagePass run{
      {ConvPass::BackwardData, any, 0, false}, image_of(dx, false), image_of(args.dy, true), args.w, Array()};
  if (!run_images(p, run)) return false;
  if (run.x.copied) dx.copy_(run.x.data);
  return true;
}

bool conv_backward_weight_onednn(const ConvProblem& problem, const ConvBackwardWeightArgs& args, bool any) {
  if (!acceptable(problem)) return false;
  ConvProblem p = problem;
  Array x = args.x;
  drop_unused(p, x);
  if (!take_strided(p, x)) return false;
  if (p.dtype == DType::BF16 && !(all_taps_meet_input(p) && outer_kernel_is_dense(p))) return false;
  ConvPrimitive* plan = find_conv(p, {ConvPass::BackwardWeight, any, p.samples, false}, args.dw);
  if (plan == nullptr) return false;
  Image image_x = image_of(x, true);
  Image image_y = image_of(args.dy, true);
  make_whole(image_x);
  make_whole(image_y);
  const Array x_room = room_for(plan->x);
  const Array w_room = room_for(plan->w);
  const Array y_room = room_for(plan->y);
  const void* cx = converted(plan->x, image_x.data.raw(), x_room);
  const void* cy = converted(plan->y, image_y.data.raw(), y_room);
  plan->conv->run({cx, target(plan->w, args.dw.raw(), w_room), cy});
  give_back(plan->w, w_room, args.dw.raw());
  return true;
}

bool is_channels_last(const Array& a) {
  bool whole = false;
  return is_channels_last(a, whole);
}

}  // namespace tessera::cpu
