#include <algorithm>

#include "ops/cpu/conv_problem.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/parallel.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

using onednn::Key;
using onednn::Plan;

constexpr double kPieceFlops = 3e8;  // between two looks at the progress hook

enum class Pass : std::int64_t { Forward, BackwardData, BackwardWeight };

// The primitive for `samples` samples, and the conversion of the weights to or from its own layout (null if
// that is the caller's layout).
struct ConvPlan {
  std::unique_ptr<Plan> conv;
  std::unique_ptr<Plan> reorder;
  std::int64_t weight_bytes = 0;
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

Key key_of(const ConvProblem& p, Pass pass, const WeightLayout& w, std::int64_t samples, bool bias,
           int threads) {
  Key key;
  key.add(static_cast<std::int64_t>(pass) | static_cast<std::int64_t>(p.dtype) << 4 | (bias ? 256 : 0));
  for (std::int64_t v : {samples, p.in_channels, p.groups, static_cast<std::int64_t>(threads)}) key.add(v);
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
Descs make_descs(const ConvProblem& p, const WeightLayout& w, std::int64_t samples, bool bias) {
  const Dims x = image_sizes(samples, p.in_channels, p.in);
  const Dims y = image_sizes(samples, p.out_channels, p.out);
  Descs d;
  d.x = onednn::make_desc(x, channels_last_strides(x), p.dtype);
  d.y = onednn::make_desc(y, channels_last_strides(y), p.dtype);
  d.w = onednn::make_any_desc(w.sizes, p.dtype);
  if (bias) d.bias = onednn::make_desc({p.out_channels}, {1}, p.dtype);
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

std::unique_ptr<ConvPlan> make_plan(const ConvProblem& p, Pass pass, const WeightLayout& w,
                                    std::int64_t samples, bool bias) {
  const Descs d = make_descs(p, w, samples, bias);
  onednn::PrimitiveDesc desc = create_desc(p, pass, d);
  if (!desc) return nullptr;
  auto plan = std::make_unique<ConvPlan>();
  const bool weight_gradient = pass == Pass::BackwardWeight;
  const onednn::Desc own = onednn::copy_desc(dnnl_primitive_desc_query_md(
      desc.get(), weight_gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0));
  plan->conv = std::make_unique<Plan>(std::move(desc));
  const bool data_gradient = pass == Pass::BackwardData;
  plan->conv->add_argument(data_gradient ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, d.x.get());
  plan->conv->add_argument(weight_gradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, own.get());
  plan->conv->add_argument(pass == Pass::Forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, d.y.get());
  if (bias) plan->conv->add_argument(DNNL_ARG_BIAS, d.bias.get());
  const onednn::Desc user = onednn::make_desc(w.sizes, w.strides, p.dtype);
  if (dnnl_memory_desc_equal(own.get(), user.get()) == 0) {
    plan->weight_bytes = static_cast<std::int64_t>(dnnl_memory_desc_get_size(own.get()));
    plan->reorder =
        weight_gradient ? make_reorder(own.get(), user.get()) : make_reorder(user.get(), own.get());
  }
  return plan;
}

ConvPlan* find_plan(const ConvProblem& p, Pass pass, const Array& w, std::int64_t samples, bool bias) {
  thread_local onednn::Cache<ConvPlan> cache;
  const int threads = threads_for(p.flops());
  onednn::use_threads(threads);
  const WeightLayout layout = weight_layout(p, w);
  return cache.get(key_of(p, pass, layout, samples, bias, threads),
                   [&] { return make_plan(p, pass, layout, samples, bias); });
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
// False where windows lie in the padding alone along some dim; oneDNN refuses such sizes.
bool touches_input(const ConvProblem& p) {
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

// The weights in the plan's layout.
const void* weights_for(ConvPlan& plan, const Array& w, Array& scratch) {
  if (!plan.reorder) return w.raw();
  scratch = Array::empty({(plan.weight_bytes + 3) / 4}, DType::F32);
  plan.reorder->run({w.raw(), scratch.raw()});
  return scratch.raw();
}

struct ImagePass {
  Pass pass;
  Image x;
  Image y;
  Array w;
  Array bias;
};

// Forward or data gradient: samples are independent, so they may be taken in pieces.
bool run_images(const ConvProblem& p, const ImagePass& run) {
  std::int64_t step = p.samples;
  if (!run.x.whole || !run.y.whole) {
    step = 1;
  } else if (p.flops() > kPieceFlops) {
    step = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kPieceFlops / p.flops() * static_cast<double>(p.samples)));
  }
  const bool bias = run.bias.defined();
  ConvPlan* first = find_plan(p, run.pass, run.w, step, bias);
  if (first == nullptr) return false;
  const std::int64_t rest = p.samples % step;
  if (rest != 0 && find_plan(p, run.pass, run.w, rest, bias) == nullptr) return false;
  for (std::int64_t n = 0; n < p.samples; n += step) {
    if (n > 0) poll_progress();
    ConvPlan* plan = find_plan(p, run.pass, run.w, std::min(step, p.samples - n), bias);
    Array scratch;
    const void* w = weights_for(*plan, run.w, scratch);
    const char* x = static_cast<const char*>(run.x.data.raw()) + n * run.x.sample_bytes();
    const char* y = static_cast<const char*>(run.y.data.raw()) + n * run.y.sample_bytes();
    if (bias) {
      plan->conv->run({x, w, y, run.bias.raw()});
    } else {
      plan->conv->run({x, w, y});
    }
  }
  return true;
}

}  // namespace

bool conv_forward_onednn(const ConvProblem& problem, const ConvArgs& args) {
  if (!touches_input(problem)) return false;
  ConvProblem p = problem;
  Array x = args.x;
  drop_unused(p, x);
  ImagePass run{Pass::Forward, image_of(x, true), image_of(args.y, false), args.w,
                args.bias.defined() ? args.bias.contiguous() : Array()};
  if (!run_images(p, run)) return false;
  if (run.y.copied) args.y.copy_(run.y.data);
  return true;
}

bool conv_backward_data_onednn(const ConvProblem& problem, const ConvBackwardDataArgs& args) {
  if (!touches_input(problem)) return false;
  ConvProblem p = problem;
  Array dx = args.dx;
  if (drop_unused(p, dx)) args.dx.zero_();
  ImagePass run{Pass::BackwardData, image_of(dx, false), image_of(args.dy, true), args.w, Array()};
  if (!run_images(p, run)) return false;
  if (run.x.copied) dx.copy_(run.x.data);
  return true;
}

bool conv_backward_weight_onednn(const ConvProblem& problem, const ConvBackwardWeightArgs& args) {
  if (!touches_input(problem)) return false;
  ConvProblem p = problem;
  Array x = args.x;
  drop_unused(p, x);
  if (!take_strided(p, x)) return false;
  Image image_x = image_of(x, true);
  Image image_y = image_of(args.dy, true);
  ConvPlan* plan = find_plan(p, Pass::BackwardWeight, args.dw, p.samples, false);
  if (plan == nullptr) return false;
  // The sum runs over all samples in one call, so they must follow each other.
  for (Image* image : {&image_x, &image_y}) {
    if (image->whole) continue;
    const Array dense = Array::empty_strided(image->data.sizes(), channels_last_strides(image->data.sizes()),
                                             image->data.dtype(), Device::Cpu);
    dense.copy_(image->data);
    image->data = dense;
  }
  Array scratch;
  if (plan->reorder) scratch = Array::empty({(plan->weight_bytes + 3) / 4}, DType::F32);
  const void* dw = plan->reorder ? scratch.raw() : args.dw.raw();
  plan->conv->run({image_x.data.raw(), dw, image_y.data.raw()});
  if (plan->reorder) plan->reorder->run({scratch.raw(), args.dw.raw()});
  return true;
}

}  // namespace tessera::cpu
