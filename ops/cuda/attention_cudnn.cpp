#include "ops/cuda/attention_cudnn.h"

#include "ops/cuda/attention_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/settings.h"
#include "runtime/copy.h"

namespace tessera::cuda {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes, of addresses and strides

// Dense, tokens outermost, as ops/attention/ring.cpp lays its results.
Array fresh(const Dims& sizes, DType dtype) {
  const Array flat = Array::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype, Device::Cuda);
  return flat.transpose(1, 2);
}

bool fits(const Array& a) {
  if (a.size(3) != 1 && a.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d)
    if (a.size(d) != 1 && (a.stride(d) <= 0 || a.stride(d) * size_of(a.dtype()) % kAlignment != 0))
      return false;
  return reinterpret_cast<std::uintptr_t>(a.raw()) % kAlignment == 0;
}
Array readable(const Array& a) {
  if (fits(a)) return a;
  const Array copy = fresh(a.sizes(), a.dtype());
  copy_strided(copy, a);
  return copy;
}
// Where cuDNN writes what is to become `a`.
Array writable(const Array& a) { return fits(a) ? a : fresh(a.sizes(), a.dtype()); }

// Dims of size 1 have the strides of dense memory, so that chance values make no new plans.
HeadStrides strides_of(const Array& a) {
  const auto of = [&](int d, std::int64_t otherwise) { return a.size(d) == 1 ? otherwise : a.stride(d); };
  return {of(0, a.numel()), of(1, a.size(3)), of(2, a.size(1) * a.size(3))};
}

// What a call takes at once of [N, H, ...].
Array part_of(const Array& a, std::int64_t sample, std::int64_t samples, std::int64_t head,
              std::int64_t heads) {
  return a.slice(0, sample, samples).slice(1, head, heads);
}

bool is_ours(const AttentionGraph& form) {
  return !cudnn_allowed() || why_own_kernel(form, {compute_capability(), attention_score_bytes()}) != nullptr;
}

struct BackwardOperands {
  Array q, k, v, out, dout, lse;
};

// Adds the gradients of these operands to dq, dk, dv.
void backward_part(AttentionGraph g, const BackwardOperands& in, const cpu::AttentionBackwardArgs& to) {
  const char* op = "attention_backward";
  const Array q = readable(in.q);
  const Array k = readable(in.k);
  const Array v = readable(in.v);
  const Array out = readable(in.out);
  const Array dout = readable(in.dout);
  const Array lse = in.lse.contiguous();
  const Array dq = fresh(q.sizes(), q.dtype());
  const Array dk = fresh(k.sizes(), k.dtype());
  const Array dv = fresh(v.sizes(), v.dtype());
  g.batch = q.size(0);
  g.heads = q.size(1);
  g.key_heads = k.size(1);
  g.q = strides_of(q);
  g.k = strides_of(k);
  g.v = strides_of(v);
  g.out = strides_of(out);
  g.dout = strides_of(dout);
  g.dq = strides_of(dq);
  g.dk = strides_of(dk);
  g.dv_out = strides_of(dv);
  const GraphPointer pointers[] = {{kAttnQ, q.raw()},     {kAttnK, k.raw()},     {kAttnV, v.raw()},
                                   {kAttnOut, out.raw()}, {kAttnLse, lse.raw()}, {kAttnDout, dout.raw()},
                                   {kAttnDq, dq.raw()},   {kAttnDk, dk.raw()},   {kAttnDv, dv.raw()}};
  run_plan(op, plan_of(op, g), pointers);
  add_into(to.dq, dq);
  add_into(to.dk, dk);
  add_into(to.dv, dv);
}

}  // namespace

bool attention_forward_by_cudnn(const cpu::AttentionForwardArgs& args, const cpu::AttentionSizes& s) {
  const char* op = "attention";
  const AttentionSight sight = sight_of(args.mask, s);
  AttentionGraph g =
      attention_form(AttentionPass::Forward, args.q.dtype(), s, sight == AttentionSight::Causal, args.scale);
  if (sight == AttentionSight::Other || is_ours(g)) return false;
  const Array q = readable(args.q);
  const Array k = readable(args.k);
  const Array v = readable(args.v);
  const Array out = writable(args.out);
  const Array lse =
      args.lse.defined() ? args.lse : Array::empty({s.batch, s.heads, s.rows}, DType::F32, Device::Cuda);
  g.q = strides_of(q);
  g.k = strides_of(k);
  g.v = strides_of(v);
  g.out = strides_of(out);
  const GraphPointer pointers[] = {
      {kAttnQ, q.raw()}, {kAttnK, k.raw()}, {kAttnV, v.raw()}, {kAttnOut, out.raw()}, {kAttnLse, lse.raw()}};
  run_plan(op, plan_of(op, g), pointers);
  if (out.raw() != args.out.raw()) copy_strided(args.out, out);
  return true;
}

bool attention_backward_by_cudnn(const cpu::AttentionBackwardArgs& args, const cpu::AttentionSizes& s) {
  const AttentionSight sight = sight_of(args.mask, s);
  const AttentionGraph g =
      attention_form(AttentionPass::Backward, args.q.dtype(), s, sight == AttentionSight::Causal, args.scale);
  if (sight == AttentionSight::Other || !args.out.defined() || args.dmask.defined() || is_ours(g))
    return false;
  const AttentionPart part = largest_part(g, attention_score_bytes());
  for (std::int64_t n = 0; n < s.batch; n += part.batch)
    for (std::int64_t h = 0; h < s.key_heads; h += part.key_heads) {
      const std::int64_t samples = std::min(part.batch, s.batch - n);
      const std::int64_t heads = std::min(part.key_heads, s.key_heads - h);
      const auto of_rows = [&](const Array& a) {
        return part_of(a, n, samples, h * s.group(), heads * s.group());
      };
      const auto of_keys = [&](const Array& a) { return part_of(a, n, samples, h, heads); };
      cpu::AttentionBackwardArgs to;
      to.dq = of_rows(args.dq);
      to.dk = of_keys(args.dk);
      to.dv = of_keys(args.dv);
      backward_part(g,
                    {of_rows(args.q), of_keys(args.k), of_keys(args.v), of_rows(args.out), of_rows(args.dout),
                     of_rows(args.lse)},
                    to);
    }
  return true;
}

}  // namespace tessera::cuda
