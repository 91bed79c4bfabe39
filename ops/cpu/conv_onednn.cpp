#include <algorithm>

#include "ops/cpu/conv_choice.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/parallel.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

using onednn::Key;
using onednn::Plan;

constexpr double kPieceFlops = 3e8;  // between two looks at the progress hook

using Pass = ConvPass;

// An operand that the primitive wants in a layout of its own: the conversion to it (of what is written: from
// it), and the bytes it takes. Null: as the caller has it.
struct Operand {
  std::unique_ptr<Plan> reorder;
  std::int64_t bytes = 0;
};
// The primitive for `samples` samples.
struct ConvPlan {
  std::unique_ptr<Plan> conv;
  Operand x, w, y;
};

// Sizes and strides of weights as oneDNN wants them: groups as a leading dim.
struct WeightLayout {
  Dims sizes;
  Dims strides;
};
WeightLayout weight_layout(const ConvProblem& p, const Array& w) {
  WeightLayout layout{w.sizes(), w.strides()};
  for (int d = 0; d < w.dim(); ++d)  // chance strides of dims of size 1
    if (w.size(d) == 1) layout.strides[d] = 1;
  if (p.groups == 1) return layout;
  layout.sizes[0] = p.group_out();
  layout.sizes.insert(0, p.groups);
  layout.strides.insert(0, w.stride(0) * p.group_out());
  if (p.group_out() == 1) layout.strides[1] = 1;
  return layout;
}

// What of a call decides on the primitive, beside the problem.
struct Wanted {
  Pass pass;
  bool any;  // maps in the layout that oneDNN likes best
  std::int64_t samples;
  bool bias;
};

Key key_of(const ConvProblem& p, const Wanted& want, const WeightLayout& w, int threads) {
  Key key;
  key.add(static_cast<std::int64_t>(want.pass) | static_cast<std::int64_t>(p.dtype) << 4 |
          (want.bias ? 256 : 0) | (want.any ? 512 : 0));
  for (std::int64_t v : {want.samples, p.in_channels, p.groups, static_cast<std::int64_t>(threads)})
    key.add(v);
  for (const Dims* d : {&p.in, &p.out, &p.stride, &p.dilation, &p.padding_lo, &w.sizes, &w.strides})
    key.add(*d);
  return key;
}

Dims image_sizes(std::int64_t samples, std::int64_t channels, const Dims& spatial) {
  Dims sizes{samples, channels};
  for (std::int64_t s : spatial) sizes.push_back(s);
  return sizes;
}

struct Descs {
  onednn::Desc x, y, w, bias;
  Dims dilation;  // counted from 0
  Dims padding_hi;
};
Descs make_descs(const ConvProblem& p, const WeightLayout& w, const Wanted& want) {
  const Dims x = image_sizes(want.samples, p.in_channels, p.in);
  const Dims y = image_sizes(want.samples, p.out_channels, p.out);
  const auto image = [&](const Dims& sizes) {
    return want.any ? onednn::make_any_desc(sizes, p.dtype)
                    : onednn::make_desc(sizes, channels_last_strides(sizes), p.dtype);
  };
  Descs d;
  d.x = image(x);
  d.y = image(y);
  d.w = onednn::make_any_desc(w.sizes, p.dtype);
  if (want.bias) d.bias = onednn::make_desc({p.out_channels}, {1}, p.dtype);
  for (std::int64_t v : p.dilation) d.dilation.push_back(v - 1);
  d.padding_hi = p.reach_hi;
  return d;
}

onednn::PrimitiveDesc create_desc(const ConvProblem& p, Pass pass, const Descs& d) {
  dnnl_engine_t engine = onednn::engine();
  dnnl_primitive_desc_t raw = nullptr;
  const auto* stride = p.stride.begin();
  const auto* dilation = d.dilation.begin();
  const auto* lo = p.padding_lo.begin();
  const auto* hi = d.padding_hi.begin();
  if (pass == Pass::Forward) {
    const dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &raw, engine, dnnl_forward_training, dnnl_convolution_direct, d.x.get(), d.w.get(), d.bias.get(),
        d.y.get(), stride, dilation, lo, hi, nullptr);
    return onednn::accepted(status, raw);
  }
  // A backward pass wants the forward one as a hint.
  const onednn::PrimitiveDesc hint = create_desc(p, Pass::Forward, d);
  if (!hint) return nullptr;
  dnnl_status_t status = dnnl_success;
  if (pass == Pass::BackwardData) {
    status = dnnl_convolution_backward_data_primitive_desc_create(&raw, engine, dnnl_convolution_direct,
                                                                  d.x.get(), d.w.get(), d.y.get(), stride,
                                                                  dilation, lo, hi, hint.get(), nullptr);
  } else {
    status = dnnl_convolution_backward_weights_primitive_desc_create(
        &raw, engine, dnnl_convolution_direct, d.x.get(), d.w.get(), nullptr, d.y.get(), stride, dilation, lo,
        hi, hint.get(), nullptr);
  }
  return onednn::accepted(status, raw);
}

std::unique_ptr<Plan> make_reorder(const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to) {
  dnnl_primitive_desc_t raw = nullptr;
  const dnnl_status_t status =
      dnnl_reorder_primitive_desc_create(&raw, from, onednn::engine(), to, onednn::engine(), nullptr);
  onednn::check(status, "oneDNN reorder");
  auto plan = std::make_unique<Plan>(onednn::PrimitiveDesc(raw));
  plan->add_argument(DNNL_ARG_FROM, from);
  plan->add_argument(DNNL_ARG_TO, to);
  return plan;
}

// How the caller's memory (`user`) becomes what the primitive wants, or the other way round.
Operand operand_of(const_dnnl_memory_desc_t wanted, const Dims& sizes, const Dims& strides,
                   const std::pair<DType, bool>& type_written) {
  const onednn::Desc user = onednn::make_desc(sizes, strides, type_written.first);
  Operand operand;
  if (dnnl_memory_desc_equal(wanted, user.get()) != 0) return operand;
  operand.bytes = static_cast<std::int64_t>(dnnl_memory_desc_get_size(wanted));
  operand.reorder = type_written.second ? make_reorder(wanted, user.get()) : make_reorder(user.get(), wanted);
  return operand;
}

std::unique_ptr<ConvPlan> make_plan(const ConvProblem& p, const Wanted& want, const WeightLayout& w) {
  const Descs d = make_descs(p, w, want);
  onednn::PrimitiveDesc desc = create_desc(p, want.pass, d);
  if (!desc) return nullptr;
  const bool gives_x = want.pass == Pass::BackwardData;
  const bool gives_w = want.pass == Pass::BackwardWeight;
  const bool gives_y = want.pass == Pass::Forward;
  const auto layout = [&](dnnl_query_t query) {
    return onednn::copy_desc(dnnl_primitive_desc_query_md(desc.get(), query, 0));
  };
  const onednn::Desc dx = layout(gives_x ? dnnl_query_diff_src_md : dnnl_query_src_md);
  const onednn::Desc dw = layout(gives_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
  const onednn::Desc dy = layout(gives_y ? dnnl_query_dst_md : dnnl_query_diff_dst_md);
  auto plan = std::make_unique<ConvPlan>();
  plan->conv = std::make_unique<Plan>(std::move(desc));
  plan->conv->add_argument(gives_x ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, dx.get());
  plan->conv->add_argument(gives_w ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, dw.get());
  plan->conv->add_argument(gives_y ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, dy.get());
  if (want.bias) plan->conv->add_argument(DNNL_ARG_BIAS, d.bias.get());
  const Dims x = image_sizes(want.samples, p.in_channels, p.in);
  const Dims y = image_sizes(want.samples, p.out_channels, p.out);
  plan->x = operand_of(dx.get(), x, channels_last_strides(x), {p.dtype, gives_x});
  plan->w = operand_of(dw.get(), w.sizes, w.strides, {p.dtype, gives_w});
  plan->y = operand_of(dy.get(), y, channels_last_strides(y), {p.dtype, gives_y});
  return plan;
}

ConvPlan* find_plan(const ConvProblem& p, const Wanted& want, const Array& w) {
  thread_local onednn::Cache<ConvPlan> cache;
  const int threads = threads_for(p.flops());
  onednn::use_threads(threads);
  const WeightLayout layout = weight_layout(p, w);
  return cache.get(key_of(p, want, layout, threads), [&] { return make_plan(p, want, layout); });
}

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

// Windows that end a stride or more before the input: oneDNN must not see that part. Tells whether x was cut.
bool drop_unused(ConvProblem& p, Array& x) {
  bool dropped = false;
  for (int d = 0; d < p.spatial; ++d) {
    if (p.reach_hi[d] > -p.stride[d]) continue;
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
  Wanted want;
  Image x;
  Image y;
  Array w;
  Array bias;
};

void run_piece(ConvPlan& plan, const ImagePass& run, const void* w, std::int64_t n) {
  const char* x = static_cast<const char*>(run.x.data.raw()) + n * run.x.sample_bytes();
  const char* y = static_cast<const char*>(run.y.data.raw()) + n * run.y.sample_bytes();
  const bool forward = run.want.pass == Pass::Forward;
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

// Forward or data gradient: samples are independent, so they may be taken in pieces.
bool run_images(const ConvProblem& p, ImagePass& run) {
  std::int64_t step = p.samples;
  if (!run.x.whole || !run.y.whole) {
    step = 1;
  } else if (p.flops() > kPieceFlops) {
    step = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kPieceFlops / p.flops() * static_cast<double>(p.samples)));
  }
  run.want.samples = step;
  if (find_plan(p, run.want, run.w) == nullptr) return false;
  run.want.samples = p.samples % step;
  if (run.want.samples != 0 && find_plan(p, run.want, run.w) == nullptr) return false;
  Array w_room;
  const void* w = nullptr;
  for (std::int64_t n = 0; n < p.samples; n += step) {
    if (n > 0) poll_progress();
    const std::int64_t samples = std::min(step, p.samples - n);
    const bool first_of_its_kind = n == 0 || samples != run.want.samples;
    run.want.samples = samples;
    ConvPlan* plan = find_plan(p, run.want, run.w);
    if (first_of_its_kind) {
      w_room = room_for(plan->w);
      w = converted(plan->w, run.w.raw(), w_room);
    }
    run_piece(*plan, run, w, n);
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

// One array of samples that follow each other: the weights' gradient sums over all of them in one call.
void make_whole(Image& image) {
  if (image.whole) return;
  const Array dense = Array::empty_strided(image.data.sizes(), channels_last_strides(image.data.sizes()),
                                           image.data.dtype(), Device::Cpu);
  dense.copy_(image.data);
  image.data = dense;
}

}  // namespace

bool conv_forward_onednn(const ConvProblem& problem, const ConvArgs& args, bool any) {
  if (!acceptable(problem)) return false;
  ConvProblem p = problem;
  Array x = args.x;
  drop_unused(p, x);
  const bool bias = args.bias.defined();
  ImagePass run{{Pass::Forward, any, 0, bias},
                image_of(x, true),
                image_of(args.y, false),
                args.w,
                bias ? args.bias.contiguous() : Array()};
  if (!run_images(p, run)) return false;
  if (run.y.copied) args.y.copy_(run.y.data);
  return true;
}

bool conv_backward_data_onednn(const ConvProblem& problem, const ConvBackwardDataArgs& args, bool any) {
  if (!acceptable(problem)) return false;
  ConvProblem p = problem;
  Array dx = args.dx;
  if (drop_unused(p, dx)) args.dx.zero_();
  ImagePass run{
      {Pass::BackwardData, any, 0, false}, image_of(dx, false), image_of(args.dy, true), args.w, Array()};
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
  if (p.dtype == DType::BF16 && !all_taps_meet_input(p)) return false;
  ConvPlan* plan = find_plan(p, {Pass::BackwardWeight, any, p.samples, false}, args.dw);
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
