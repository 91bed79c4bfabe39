#include "ops/cuda/attention_cudnn.h"

#include "ops/cpu/attention_common.h"
#include "ops/cuda/attention_operands.h"
#include "ops/cuda/attention_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/library_operands.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "runtime/copy.h"

namespace tessera::cuda {
namespace {

// Dense, tokens outermost, as ops/attention/ring.cpp lays its results.
Array fresh(const Dims& sizes, DType dtype) {
  const Array flat = Array::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype, Device::Cuda);
  return flat.transpose(1, 2);
}

bool fits(const Array& a) {
  if (a.size(3) != 1 && a.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d)
    if (a.size(d) != 1 && (a.stride(d) <= 0 || a.stride(d) * size_of(a.dtype()) % kLibraryAlignment != 0))
      return false;
  return is_library_aligned(a);
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

cpu::AttentionSizes sizes_of(const AttentionPiece& p, cpu::AttentionSizes s) {
  s.rows = p.rows;
  s.keys = p.keys;
  return s;
}
// The pieces of a call; not known where cuDNN does not take every one: a block goes one way.
AttentionPieces pieces_for_cudnn(AttentionPass pass, DType dtype, const cpu::AttentionMask& mask,
                                 const cpu::AttentionSizes& s) {
  if (!cudnn_allowed() || !is_half(dtype)) return {};
  const AttentionPieces pieces = pieces_of(mask, s);
  const AttentionLimits limits{compute_capability(), cudnn_version(), attention_score_bytes()};
  for (int i = 0; i < pieces.count; ++i) {
    const AttentionPiece& p = pieces.piece[static_cast<std::size_t>(i)];
    if (why_own_kernel(attention_form(pass, dtype, sizes_of(p, s), p.causal, 1.0), limits) != nullptr)
      return {};
  }
  return pieces;
}

Array rows_of(const AttentionPiece& p, const Array& a) { return a.slice(2, p.row, p.rows); }
Array keys_of(const AttentionPiece& p, const Array& a) { return a.slice(2, p.key, p.keys); }

struct ForwardOperands {
  Array q, k, v, out, lse;
};
void forward_piece(AttentionGraph g, const ForwardOperands& in) {
  const char* op = "attention";
  const Array q = readable(in.q);
  const Array k = readable(in.k);
  const Array v = readable(in.v);
  const Array out = writable(in.out);
  const Array lse =
      is_library_aligned(in.lse) ? in.lse : Array::empty(in.lse.sizes(), DType::F32, Device::Cuda);
  g.q = strides_of(q);
  g.k = strides_of(k);
  g.v = strides_of(v);
  g.out = strides_of(out);
  const GraphPointer pointers[] = {
      {kAttnQ, q.raw()}, {kAttnK, k.raw()}, {kAttnV, v.raw()}, {kAttnOut, out.raw()}, {kAttnLse, lse.raw()}};
  run_graph(op, g, pointers);
  if (out.raw() != in.out.raw()) copy_strided(in.out, out);
  if (lse.raw() != in.lse.raw()) copy_strided(in.lse, lse);
}

void merge(const cpu::AttentionArgs& args, const AttentionPiece& p, const Array& block, const Array& lse) {
  AttentionMergeElements e(head_shape(block));
  e.block = head_rows(block);
  e.o = head_rows(rows_of(p, args.o));
  e.lse = lse.raw();
  e.row_max = rows_of(p, args.row_max).raw();
  e.row_sum = rows_of(p, args.row_sum).raw();
  e.state_rows = args.row_max.size(2);
  attention_merge_elements(e, current_stream());
  check_launch("attention_accumulate");
}

void accumulate_pieces(const cpu::AttentionArgs& args, const cpu::AttentionSizes& s,
                       const AttentionPieces& pieces) {
  const DType dtype = args.q.dtype();
  for (int i = 0; i < pieces.count; ++i) {
    const AttentionPiece& p = pieces.piece[static_cast<std::size_t>(i)];
    const Array out = fresh({s.batch, s.heads, p.rows, s.dv}, dtype);
    const Array lse = Array::empty({s.batch, s.heads, p.rows}, DType::F32, Device::Cuda);
    forward_piece(attention_form(AttentionPass::Forward, dtype, sizes_of(p, s), p.causal, args.scale),
                  {rows_of(p, args.q), keys_of(p, args.k), keys_of(p, args.v), out, lse});
    merge(args, p, out, lse);
  }
}

struct BackwardOperands {
  Array q, k, v, out, dout, lse;
};

void give(const Array& to, const Array& gradient, bool first) {
  if (first) {
    copy_strided(to, gradient);
  } else {
    add_into(to, gradient);
  }
}

// Gives the gradients of these operands to dq, dk, dv.
void backward_part(AttentionGraph g, const BackwardOperands& in, const cpu::AttentionBackwardArgs& to) {
  const char* op = "attention_backward";
  const Array q = readable(in.q);
  const Array k = readable(in.k);
  const Array v = readable(in.v);
  const Array out = readable(in.out);
  const Array dout = readable(in.dout);
  const Array lse = dense_for_library(in.lse);
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
  run_graph(op, g, pointers);
  give(to.dq, dq, to.first_of_dq);
  give(to.dk, dk, to.first_of_keys);
  give(to.dv, dv, to.first_of_keys);
}

// By parts of the batch and the heads that the memory for scores suffices for.
void backward_piece(const AttentionGraph& g, const BackwardOperands& in,
                    const cpu::AttentionBackwardArgs& to) {
  const AttentionPart part = largest_part(g, attention_score_bytes());
  const std::int64_t group = g.heads / g.key_heads;
  for (std::int64_t n = 0; n < g.batch; n += part.batch)
    for (std::int64_t h = 0; h < g.key_heads; h += part.key_heads) {
      const std::int64_t samples = std::min(part.batch, g.batch - n);
      const std::int64_t heads = std::min(part.key_heads, g.key_heads - h);
      const auto of_rows = [&](const Array& a) {
        return a.slice(0, n, samples).slice(1, h * group, heads * group);
      };
      const auto of_keys = [&](const Array& a) { return a.slice(0, n, samples).slice(1, h, heads); };
      cpu::AttentionBackwardArgs there;
      there.first_of_dq = to.first_of_dq;
      there.first_of_keys = to.first_of_keys;
      there.dq = of_rows(to.dq);
      there.dk = of_keys(to.dk);
      there.dv = of_keys(to.dv);
      backward_part(
          g,
          {of_rows(in.q), of_keys(in.k), of_keys(in.v), of_rows(in.out), of_rows(in.dout), of_rows(in.lse)},
          there);
    }
}

}  // namespace

bool attention_forward_by_cudnn(const cpu::AttentionForwardArgs& args, const cpu::AttentionSizes& s) {
  const DType dtype = args.q.dtype();
  const AttentionPieces pieces = pieces_for_cudnn(AttentionPass::Forward, dtype, args.mask, s);
  if (pieces.count == 0) return false;
  const AttentionPiece& p = pieces.piece[0];
  const auto numbers = [](const Dims& sizes) { return Array::empty(sizes, DType::F32, Device::Cuda); };
  const Dims rows{s.batch, s.heads, s.rows};
  if (pieces.count == 1 && p.rows == s.rows) {
    const Array lse = args.lse.defined() ? args.lse : numbers(rows);
    forward_piece(attention_form(AttentionPass::Forward, dtype, sizes_of(p, s), p.causal, args.scale),
                  {args.q, keys_of(p, args.k), keys_of(p, args.v), args.out, lse});
    return true;
  }
  const cpu::AttentionArgs state{args.q,        args.k,        args.v,     numbers(args.out.sizes()),
                                 numbers(rows), numbers(rows), args.scale, args.mask};
  kernels::attention_init(Device::Cuda, state.o, state.row_max, state.row_sum);
  accumulate_pieces(state, s, pieces);
  kernels::attention_finish(Device::Cuda, {args.out, args.lse, state.o, state.row_max, state.row_sum});
  return true;
}

bool attention_accumulate_by_cudnn(const cpu::AttentionArgs& args, const cpu::AttentionSizes& s) {
  const AttentionPieces pieces = pieces_for_cudnn(AttentionPass::Forward, args.q.dtype(), args.mask, s);
  accumulate_pieces(args, s, pieces);
  return pieces.known;
}

bool attention_backward_by_cudnn(const cpu::AttentionBackwardArgs& args, const cpu::AttentionSizes& s) {
  if (!args.out.defined() || args.dmask.defined()) return false;
  const DType dtype = args.q.dtype();
  const AttentionPieces pieces = pieces_for_cudnn(AttentionPass::Backward, dtype, args.mask, s);
  if (!pieces.known) return false;
  // One piece that is all there is needs no sums.
  const AttentionPiece& first = pieces.piece[0];
  const bool all = pieces.count == 1 && first.rows == s.rows && first.keys == s.keys;
  if (!all) cpu::begin_sums(args);
  for (int i = 0; i < pieces.count; ++i) {
    const AttentionPiece& p = pieces.piece[static_cast<std::size_t>(i)];
    cpu::AttentionBackwardArgs to;
    to.dq = rows_of(p, args.dq);
    to.dk = keys_of(p, args.dk);
    to.dv = keys_of(p, args.dv);
    to.first_of_dq = all && args.first_of_dq;
    to.first_of_keys = all && args.first_of_keys;
    backward_piece(attention_form(AttentionPass::Backward, dtype, sizes_of(p, s), p.causal, args.scale),
                   {rows_of(p, args.q), keys_of(p, args.k), keys_of(p, args.v), rows_of(p, args.out),
                    rows_of(p, args.dout), rows_of(p, args.lse)},
                   to);
  }
  return true;
}

}  // namespace tessera::cuda
