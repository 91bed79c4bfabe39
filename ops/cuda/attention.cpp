// Attention on the device, by kernels of our own for every type, or in half precision by cuDNN where the rule
// of attention_rule.h says so. The state and lse mean the same everywhere, so the passes can be mixed.
#include "ops/cpu/attention.h"

#include <vector>

#include "ops/cpu/attention_common.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_operands.h"
#include "ops/cuda/register.h"
#include "ops/kernels.h"
#include "runtime/cuda/staging.h"

namespace tessera::cuda {
namespace {

void* data_of(const Array& x) { return x.defined() ? x.raw() : nullptr; }

// Positions that are at most two runs of consecutive numbers (one cut, or the two of a balanced one) travel
// as four numbers; others as a table, which `table` keeps.
PositionRuns runs_of(const std::int64_t* positions, std::int64_t n, Array& table) {
  PositionRuns runs;
  runs.split = n;
  if (positions == nullptr || n == 0) return runs;
  runs.first = positions[0];
  const auto end_of_run = [&](std::int64_t i) {
    while (i < n && positions[i] == positions[i - 1] + 1) ++i;
    return i;
  };
  runs.split = end_of_run(1);
  if (runs.split == n) return runs;
  runs.second = positions[runs.split];
  if (end_of_run(runs.split + 1) == n) return runs;
  table = Array::empty({n}, DType::I64, Device::Cuda);
  copy_to_device(table.raw(), positions, table.nbytes(), current_stream());
  runs.table = table.data<std::int64_t>();
  return runs;
}

// The operands as the kernels see them, and what must live until these are launched.
struct Operands {
  AttentionElements elements;
  std::vector<Array> tables;
};

AttentionDropElements drop_of(const cpu::AttentionDropout& d, const cpu::AttentionSizes& s,
                              std::vector<Array>& tables) {
  AttentionDropElements e;
  if (!d.any()) return e;
  e.any = true;
  e.key = d.random;
  e.limit = d.limit();
  e.factor = d.factor();
  e.batch = runs_of(d.positions[0], s.batch, tables.emplace_back());
  e.heads = runs_of(d.positions[1], s.heads, tables.emplace_back());
  e.rows = runs_of(d.positions[2], s.rows, tables.emplace_back());
  e.keys = runs_of(d.positions[3], s.keys, tables.emplace_back());
  e.all_heads = d.sizes[1];
  e.all_rows = d.sizes[2];
  e.all_keys = d.sizes[3];
  e.index_offset = d.index_offset;
  return e;
}

template <class Args>
Operands operands_of(const Args& args, const cpu::AttentionSizes& s) {
  Operands o;
  AttentionElements& e = o.elements;
  e.dtype = args.q.dtype();
  e.extent = {s.batch, s.heads, s.key_heads, s.rows, s.keys, s.d, s.dv};
  e.q = head_rows(args.q);
  e.k = head_rows(args.k);
  e.v = head_rows(args.v);
  e.scale = args.scale;
  e.mask.causal = args.mask.causal;
  if (args.mask.causal) {
    e.mask.rows = runs_of(args.mask.q_positions, s.rows, o.tables.emplace_back());
    e.mask.keys = runs_of(args.mask.k_positions, s.keys, o.tables.emplace_back());
  }
  e.drop = drop_of(args.mask.dropout, s, o.tables);
  const Array& mask = args.mask.mask;
  if (mask.defined()) {
    e.mask.kind = mask.dtype() == DType::Bool   ? MaskKind::Keep
                  : mask.dtype() == DType::BF16 ? MaskKind::AddBf16
                  : mask.dtype() == DType::F16  ? MaskKind::AddF16
                                                : MaskKind::Add;
    e.mask.data = mask.raw();
    for (int d = 0; d < 4; ++d) e.mask.stride[d] = mask.stride(d);
  }
  return o;
}

void attention_accumulate_cuda(const cpu::AttentionArgs& args) {
  const cpu::AttentionSizes s = cpu::check_accumulate(args);
  if (s.rows == 0 || s.keys == 0 || attention_accumulate_by_cudnn(args, s)) return;
  const Operands operands = operands_of(args, s);
  AttendElements e;
  e.in = operands.elements;
  e.fold = true;
  e.out = head_rows(args.o);
  e.row_max = args.row_max.raw();
  e.row_sum = args.row_sum.raw();
  attend_elements(e, current_stream());
  check_launch("attention_accumulate");
}

void attention_forward_cuda(const cpu::AttentionForwardArgs& args) {
  const cpu::AttentionSizes s = cpu::check_forward(args);
  if (s.rows == 0 || attention_forward_by_cudnn(args, s)) return;
  const Operands operands = operands_of(args, s);
  AttendElements e;
  e.in = operands.elements;
  e.out = head_rows(args.out);
  e.lse = data_of(args.lse);
  attend_elements(e, current_stream());
  check_launch("attention");
}

void attention_finish_cuda(const cpu::AttentionFinishArgs& args) {
  cpu::check_finish(args);
  const Array& o = args.o;
  if (o.size(0) * o.size(1) * o.size(2) == 0) return;
  AttentionFinishElements e(head_shape(args.out));
  e.out = head_rows(args.out);
  e.o = head_rows(o);
  e.row_max = args.row_max.raw();
  e.row_sum = args.row_sum.raw();
  e.lse = data_of(args.lse);
  attention_finish_elements(e, current_stream());
  check_launch("attention_finish");
}

void attention_delta_cuda(const Array& delta, const Array& dout, const Array& out) {
  cpu::check_delta(delta, dout, out);
  if (delta.numel() == 0) return;
  AttentionDeltaElements e(head_shape(out));
  e.dout = head_rows(dout);
  e.out = head_rows(out);
  e.delta = delta.raw();
  attention_delta_elements(e, current_stream());
  check_launch("attention_delta");
}

void attention_backward_cuda(const cpu::AttentionBackwardArgs& args) {
  const cpu::AttentionSizes s = cpu::check_backward(args);
  if (args.dmask.defined()) args.dmask.zero_();
  if (s.rows == 0 || s.keys == 0) return cpu::begin_sums(args);
  if (attention_backward_by_cudnn(args, s)) return;
  cpu::make_delta(args, &attention_delta_cuda);
  const Operands operands = operands_of(args, s);
  AttendBackwardElements e;
  e.in = operands.elements;
  e.dout = head_rows(args.dout);
  e.dq = head_rows(args.dq);
  e.dk = head_rows(args.dk);
  e.dv = head_rows(args.dv);
  e.lse = args.lse.raw();
  e.delta = args.delta.raw();
  e.dmask = data_of(args.dmask);
  e.first_of_dq = args.first_of_dq;
  e.first_of_keys = args.first_of_keys;
  attend_backward_elements(e, current_stream());
  check_launch("attention_backward");
}

}  // namespace

void register_attention() {
  // Fills, which know their device.
  kernels::attention_init.set(Device::Cuda, &cpu::attention_init);
  kernels::attention_accumulate.set(Device::Cuda, &attention_accumulate_cuda);
  kernels::attention_finish.set(Device::Cuda, &attention_finish_cuda);
  kernels::attention_forward.set(Device::Cuda, &attention_forward_cuda);
  kernels::attention_backward.set(Device::Cuda, &attention_backward_cuda);
}

}  // namespace tessera::cuda
