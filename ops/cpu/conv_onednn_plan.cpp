#include "ops/cpu/conv_onednn_plan.h"

#include "ops/cpu/parallel.h"

namespace tessera::cpu {

namespace {

using onednn::Key;
using onednn::Plan;

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

Key key_of(const ConvProblem& p, const WantedConv& want, const WeightLayout& w, int threads) {
  Key key;
  key.add(static_cast<std::int64_t>(want.pass) | static_cast<std::int64_t>(p.dtype) << 4 |
          (want.bias ? 256 : 0) | (want.any ? 512 : 0) | static_cast<std::int64_t>(want.activation) << 12);
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
Descs make_descs(const ConvProblem& p, const WeightLayout& w, const WantedConv& want) {
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

struct AttributeDeleter {
  void operator()(dnnl_primitive_attr_t a) const { dnnl_primitive_attr_destroy(a); }
};
using Attributes = std::unique_ptr<dnnl_primitive_attr, AttributeDeleter>;

// Null where nothing follows.
Attributes followed_by(Activation activation) {
  if (activation == Activation::None) return nullptr;
  const bool silu = activation == Activation::Silu;
  dnnl_primitive_attr_t raw = nullptr;
  onednn::check(dnnl_primitive_attr_create(&raw), "oneDNN attributes");
  Attributes attributes(raw);
  dnnl_post_ops_t after = nullptr;
  onednn::check(dnnl_post_ops_create(&after), "oneDNN attributes");
  // SiLU is x times the logistic function of 1 x.
  dnnl_status_t status = dnnl_post_ops_append_eltwise(
      after, silu ? dnnl_eltwise_swish : dnnl_eltwise_gelu_tanh, silu ? 1.0F : 0.0F, 0.0F);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(raw, after);  // a copy
  dnnl_post_ops_destroy(after);
  onednn::check(status, "oneDNN attributes");
  return attributes;
}

onednn::PrimitiveDesc create_desc(const ConvProblem& p, ConvPass pass, const Descs& d,
                                  Activation activation) {
  dnnl_engine_t engine = onednn::engine();
  dnnl_primitive_desc_t raw = nullptr;
  const auto* stride = p.stride.begin();
  const auto* dilation = d.dilation.begin();
  const auto* lo = p.padding_lo.begin();
  const auto* hi = d.padding_hi.begin();
  if (pass == ConvPass::Forward) {
    const dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
        &raw, engine, dnnl_forward_training, dnnl_convolution_direct, d.x.get(), d.w.get(), d.bias.get(),
        d.y.get(), stride, dilation, lo, hi, followed_by(activation).get());
    return onednn::accepted(status, raw);
  }
  // A backward pass wants the forward one as a hint.
  const onednn::PrimitiveDesc hint = create_desc(p, ConvPass::Forward, d, Activation::None);
  if (!hint) return nullptr;
  dnnl_status_t status = dnnl_success;
  if (pass == ConvPass::BackwardData) {
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

std::unique_ptr<ConvPrimitive> make_plan(const ConvProblem& p, const WantedConv& want,
                                         const WeightLayout& w) {
  const Descs d = make_descs(p, w, want);
  onednn::PrimitiveDesc desc = create_desc(p, want.pass, d, want.activation);
  if (!desc) return nullptr;
  const bool gives_x = want.pass == ConvPass::BackwardData;
  const bool gives_w = want.pass == ConvPass::BackwardWeight;
  const bool gives_y = want.pass == ConvPass::Forward;
  const auto layout = [&](dnnl_query_t query) {
    return onednn::copy_desc(dnnl_primitive_desc_query_md(desc.get(), query, 0));
  };
  const onednn::Desc dx = layout(gives_x ? dnnl_query_diff_src_md : dnnl_query_src_md);
  const onednn::Desc dw = layout(gives_w ? dnnl_query_diff_weights_md : dnnl_query_weights_md);
  const onednn::Desc dy = layout(gives_y ? dnnl_query_dst_md : dnnl_query_diff_dst_md);
  auto plan = std::make_unique<ConvPrimitive>();
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

}  // namespace

ConvPrimitive* find_conv(const ConvProblem& p, const WantedConv& want, const Array& w) {
  thread_local onednn::Cache<ConvPrimitive> cache;
  const int threads = threads_for(p.flops());
  onednn::use_threads(threads);
  const WeightLayout layout = weight_layout(p, w);
  return cache.get(key_of(p, want, layout, threads), [&] { return make_plan(p, want, layout); });
}

}  // namespace tessera::cpu
