#include "ops/attention/attention_call.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention/ring.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/matmul/matmul.h"
#include "ops/random/drop_by_key.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "ops/softmax/softmax.h"

namespace tessera {
namespace {

struct AttentionSetup {
  AttentionShape shape;
  double scale = 1.0;
  bool causal = false;
  cpu::AttentionDropout dropout;  // no plan depends on it

  std::size_t hash() const { return Hash().add(scale).add(std::int64_t{causal}); }
};

struct AttentionSaved {
  SavedTensor q, k, v, mask, out;
  Tensor lse;
};

const AttentionPlan* plan_in(const LocalCall& l) {
  return l.plan ? static_cast<const AttentionPlan*>(l.plan->extra.get()) : nullptr;
}

SpecPtr with_sums(const SpecPtr& spec, unsigned axes) {
  Placements p = spec->placements();
  for (std::size_t a = 0; a < p.size(); ++a)
    if ((axes >> a & 1U) != 0) p[a] = Partial();
  return with_placements(*spec, p);
}

// Gradients of q, k, v and (of the scores' sizes) the mask.
Tensors fused_backward(const BackwardContext& c, const Tensor& dout, const AttentionSaved& saved,
                       const AttentionSetup& setup) {
  static const OpDef op{"scaled_dot_product_attention_backward"};
  const char* name = "scaled_dot_product_attention";
  const Tensor mask = saved.mask.unpack(name);
  const bool mask_gradient = mask.defined() && c.needs(3);
  const std::array<Tensor, 7> inputs{dout,
                                     saved.q.unpack(name),
                                     saved.k.unpack(name),
                                     saved.v.unpack(name),
                                     saved.out.unpack(name),
                                     saved.lse,
                                     mask};
  const bool key_gradients = c.needs(1) || c.needs(2);
  std::vector<Dims> sizes{setup.shape.q, setup.shape.k, setup.shape.v};
  if (mask_gradient) sizes.push_back(setup.shape.scores());
  auto local = [&](LocalCall& l) {
    const RingSetup ring{setup.scale, setup.causal, plan_in(l), setup.dropout};
    const Array out = l.in[4].contiguous();  // as the forward pass left it, or a part of that
    const Array lse = l.in[5].contiguous();
    const RingBackward g = ring_backward(
        ring, {l.in[0], l.in[1], l.in[2], l.in[3], out, lse, l.in[6], mask_gradient, key_gradients});
    l.out[0] = g.dq;
    l.out[1] = g.dk;
    l.out[2] = g.dv;
    if (mask_gradient) l.out[3] = g.dmask.to(l.in[1].dtype());
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    SpecPtr q = in[1];
    for (int d = 0; d < 4; ++d) q = cut_along(q, d, *in[0], d);
    auto p = std::make_shared<AttentionPlan>(plan_attention({q, in[2], in[3], in[6]}, setup.shape));
    Strategy s;
    s.inputs = {p->out, p->q, p->k, p->v, p->out, p->lse, p->mask};
    s.outputs = {p->q, with_sums(p->k, p->key_sums), with_sums(p->v, p->key_sums)};
    if (mask_gradient) {
      std::vector<std::optional<DimCut>> cuts(4);
      for (int d = 0; d < 3; ++d)
        if (p->out->cut(d)) cuts[static_cast<std::size_t>(d)] = *p->out->cut(d);
      s.outputs.push_back(
          ShardSpec::make(p->out->mesh(), p->out->placements(), setup.shape.scores(), std::move(cuts)));
    }
    s.extra = std::move(p);
    return s;
  };
  OpCall call_args;
  call_args.op = &op;
  call_args.inputs = inputs;
  call_args.output_sizes = sizes;
  call_args.parameters = Hash().add(static_cast<std::int64_t>(setup.hash())).add(std::int64_t{mask_gradient});
  call_args.plan = plan;
  call_args.local = local;
  Tensors g = call(call_args);
  g.resize(4);
  if (!key_gradients) g[1] = g[2] = Tensor();
  if (mask_gradient) g[3] = sum_to_size(g[3], mask.sizes());
  return g;
}

// Heads of k or v repeated for grouped queries, and the sum that is its transpose.
Tensor repeat_heads(const Tensor& t, std::int64_t heads) {
  const std::int64_t own = t.size(1);
  if (own == heads) return t;
  const Tensor wide = expand(unsqueeze(t, 2), {t.size(0), own, heads / own, t.size(2), t.size(3)});
  return reshape(wide, {t.size(0), heads, t.size(2), t.size(3)});
}
Tensor sum_heads(const Tensor& t, std::int64_t own) {
  if (t.size(1) == own) return t;
  return sum(reshape(t, {t.size(0), own, t.size(1) / own, t.size(2), t.size(3)}), {2});
}

// Which scores count (Bool), or undefined if all do.
Tensor visible(const AttentionSetup& s, const Tensor& mask, Device device) {
  if (s.causal) {  // and no mask
    const std::int64_t rows = s.shape.q[2];
    const std::int64_t keys = s.shape.k[2];
    Array a = Array::zeros({rows, keys}, DType::Bool);
    for (std::int64_t i = 0; i < rows; ++i) a.box({i, 0}, {1, std::min(i + 1, keys)}).fill_(1.0);
    return Tensor(a.to(device));
  }
  if (!mask.defined() || mask.dtype() == DType::Bool) return mask;
  return gt(mask, full_scalar(mask, -std::numeric_limits<double>::infinity()));
}

// P, then dV = Pᵀ dO, dS = P·(dO Vᵀ − rowsum(dO·O)), dQ = dS K·scale, dK = dSᵀ Q·scale; all with ops, so that
// the result can be differentiated. The scores are materialised. What dropout makes of P is in dV, and it
// makes the same of dO Vᵀ.
Tensors composed_backward(const BackwardContext& c, const Tensor& dout, const AttentionSaved& saved,
                          const AttentionSetup& setup) {
  const char* name = "scaled_dot_product_attention";
  const Tensor q = saved.q.unpack(name);
  const std::int64_t heads = q.size(1);
  const std::int64_t key_heads = setup.shape.k[1];
  const Tensor k = repeat_heads(saved.k.unpack(name), heads);
  const Tensor v = repeat_heads(saved.v.unpack(name), heads);
  const Tensor mask = saved.mask.unpack(name);
  const Tensor keep = visible(setup, mask, q.device());
  Tensor scores = matmul(q, transpose(k, -1, -2)) * setup.scale;
  if (mask.defined() && mask.dtype() != DType::Bool) {
    const Tensor finite = gt(mask, full_scalar(mask, -std::numeric_limits<double>::infinity()));
    scores = scores + where(finite, mask, full_scalar(mask, 0.0));
  }
  if (keep.defined()) scores = where(keep, scores, full_scalar(scores, -1e30));
  Tensor p = softmax(scores, -1);
  if (keep.defined()) p = p * to(keep, p.dtype());
  const auto dropped = [&d = setup.dropout](const Tensor& t) {
    return d.any() ? drop_by_key(t, d.p, d.random, d.index_offset) : t;
  };
  const Tensor dp = dropped(matmul(dout, transpose(v, -1, -2)));
  const Tensor ds = p * (dp - sum(dp * p, {3}, true));
  Tensors g(4);
  if (c.needs(0)) g[0] = matmul(ds, k) * setup.scale;
  if (c.needs(1)) g[1] = sum_heads(matmul(transpose(ds, -1, -2), q) * setup.scale, key_heads);
  if (c.needs(2)) g[2] = sum_heads(matmul(transpose(dropped(p), -1, -2), dout), key_heads);
  if (c.needs(3) && mask.defined()) g[3] = sum_to_size(ds, mask.sizes());
  return g;
}

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const char* name = "scaled_dot_product_attention";
  check_attention_options(q, k, v, o);
  const Dims& a = q.sizes();
  const Dims& b = k.sizes();
  const Dims& c = v.sizes();
  const bool heads = o.enable_gqa ? b[1] > 0 && a[1] % b[1] == 0 : a[1] == b[1];
  TS_CHECK(a[0] == b[0] && b[0] == c[0] && b[1] == c[1] && b[2] == c[2] && a[3] == b[3] && heads, name,
           "q {}, k {} and v {} do not go together{}", a.str(), b.str(), c.str(),
           o.enable_gqa ? "" : " (enable_gqa is off)");
  TS_CHECK(!o.attn_mask.defined() || o.attn_mask.dim() <= 4, name,
           "the mask must be of at most four dims, given {}", o.attn_mask.sizes().str());
}

Tensor four_dims(const Tensor& given, const AttentionShape& shape) {
  if (!given.defined()) return given;
  Tensor mask = given;
  if (given.dim() == 3) {
    mask = unsqueeze(given, 0);
  } else if (given.dim() < 4) {
    Dims sizes = Dims::filled(4 - given.dim(), 1);
    for (const std::int64_t n : given.sizes()) sizes.push_back(n);
    const bool array = !given.is_sharded() && !given.requires_grad();  // nothing to record or to plan
    mask = array ? Tensor(given.local().reshape(sizes)) : reshape(given, sizes);
  }
  const Dims scores = shape.scores();
  TS_CHECK(broadcasts_to(mask.sizes(), scores), "scaled_dot_product_attention",
           "the mask {} does not broadcast to the scores {}", given.sizes().str(), scores.str());
  return mask;
}

cpu::AttentionDropout draw_dropout(const AttentionOptions& o, const AttentionShape& shape, Device device,
                                   std::int64_t samples) {
  cpu::AttentionDropout d;
  if (o.dropout_p == 0.0) return d;
  d.p = o.dropout_p;
  d.sizes = shape.scores();
  d.random = o.generator->next_key(device);
  if (samples > 0) d.index_offset = o.generator->batch_offset() * (numel_of(d.sizes) / samples);
  return d;
}

}  // namespace

void check_attention_options(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const char* name = "scaled_dot_product_attention";
  TS_CHECK(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), name,
           "q, k and v must have one floating dtype, given {}, {} and {}", name_of(q.dtype()),
           name_of(k.dtype()), name_of(v.dtype()));
  TS_CHECK(o.dropout_p >= 0.0 && o.dropout_p <= 1.0, name,
           "dropout_p {} given, 0 <= dropout_p <= 1 is allowed", o.dropout_p);
  TS_CHECK(o.dropout_p == 0.0 || o.generator != nullptr, name,
           "dropout_p {} needs a generator, none was given", o.dropout_p);
  if (!o.attn_mask.defined()) return;
  TS_CHECK(!o.is_causal, name, "a mask {} and is_causal were given, one of the two is allowed",
           o.attn_mask.sizes().str());
  TS_CHECK(o.attn_mask.dtype() == DType::Bool || o.attn_mask.dtype() == q.dtype(), name,
           "the mask must be bool or {}, given {} {}", name_of(q.dtype()), name_of(o.attn_mask.dtype()),
           o.attn_mask.sizes().str());
}

Tensor attention_in_four_dims(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                              std::int64_t samples) {
  static const OpDef op{"scaled_dot_product_attention"};
  check_attention(q, k, v, o);
  AttentionSetup setup;
  setup.shape = {q.sizes(), k.sizes(), v.sizes(), Dims()};
  const Tensor mask = four_dims(o.attn_mask, setup.shape);
  if (mask.defined()) setup.shape.mask = mask.sizes();
  setup.scale = o.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.sizes()[3])));
  setup.causal = o.is_causal;
  if (o.dropout_p > 0.0)
    check_together(op.name, {&q, &k, &v, &o.attn_mask});  // what is refused draws nothing
  setup.dropout = draw_dropout(o, setup.shape, q.device(), samples);
  const std::array<Tensor, 4> inputs{q, k, v, mask};
  const std::array<Dims, 2> sizes{setup.shape.out(), setup.shape.lse()};
  auto local = [&](LocalCall& l) {
    const RingForward f = ring_forward({setup.scale, setup.causal, plan_in(l), setup.dropout}, l.in[0],
                                       l.in[1], l.in[2], l.in[3]);
    l.out[0] = f.out;
    l.out[1] = f.lse;
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    auto p = std::make_shared<AttentionPlan>(plan_attention(in, setup.shape));
    Strategy s;
    s.inputs = {p->q, p->k, p->v, p->mask};
    s.outputs = {p->out, p->lse};
    s.extra = std::move(p);
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    AttentionSaved saved{SavedTensor(in[0]), SavedTensor(in[1]),          SavedTensor(in[2]),
                         SavedTensor(in[3]), SavedTensor::output(out[0]), out[1].detach()};
    return [saved, setup](const BackwardContext& c, const Tensors& g) {
      return grad_enabled() ? composed_backward(c, g[0], saved, setup)
                            : fused_backward(c, g[0], saved, setup);
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  if (std::any_of(inputs.begin(), inputs.end(),
                  [](const Tensor& t) { return t.defined() && t.is_sharded(); }))
    c.parameters = setup.hash();
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return std::move(call(c)[0]);
}

}  // namespace tessera
