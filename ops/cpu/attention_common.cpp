#include "ops/cpu/attention_common.h"

#include <numeric>

#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::cpu {

DType accumulator_of(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

AttentionSizes attention_sizes(const char* op, const Array& q, const Array& k, const Array& v,
                               const AttentionMask& mask) {
  TS_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, op, "q {}, k {}, v {}; four dims each are needed",
           q.sizes().str(), k.sizes().str(), v.sizes().str());
  TS_CHECK(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(), op,
           "types {}, {}, {}; one floating type is needed", name_of(q.dtype()), name_of(k.dtype()),
           name_of(v.dtype()));
  const AttentionSizes s{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
  TS_CHECK(k.size(0) == s.batch && v.size(0) == s.batch && v.size(1) == s.key_heads && v.size(2) == s.keys &&
               k.size(3) == s.d && (s.key_heads == 0 ? s.heads == 0 : s.heads % s.key_heads == 0),
           op,
           "q {}, k {}, v {}; [N, H, L, D], [N, Hk, S, D], [N, Hk, S, Dv] with H a multiple of Hk are needed",
           q.sizes().str(), k.sizes().str(), v.sizes().str());
  TS_CHECK(s.dv > 0, op, "v {}; a width of 1 or more is needed", v.sizes().str());
  for (const Array* a : {&q, &k, &v})
    TS_CHECK(a->size(3) <= 1 || a->numel() == 0 || a->stride(3) == 1, op,
             "operand of sizes {} and strides {}; the last dim must have stride 1", a->sizes().str(),
             a->strides().str());
  if (mask.mask.defined()) {
    const Array& m = mask.mask;
    TS_CHECK(m.sizes() == Dims({s.batch, s.heads, s.rows, s.keys}), op, "mask of sizes {}; {} is needed",
             m.sizes().str(), Dims({s.batch, s.heads, s.rows, s.keys}).str());
    TS_CHECK(m.dtype() == DType::Bool || m.dtype() == q.dtype() || m.dtype() == accumulator_of(q.dtype()), op,
             "mask of type {} for q of type {}; bool, {} and {} are allowed", name_of(m.dtype()),
             name_of(q.dtype()), name_of(q.dtype()), name_of(accumulator_of(q.dtype())));
  }
  const AttentionDropout& dropout = mask.dropout;
  TS_CHECK(dropout.p >= 0.0 && dropout.p <= 1.0, op, "dropout p is {}, allowed are 0 to 1", dropout.p);
  TS_CHECK(!dropout.any() || dropout.sizes.size() == 4, op,
           "dropout of weights {}; the four sizes of all of them are needed", dropout.sizes.str());
  return s;
}

void check_rows_of(const char* op, const Array& x, const AttentionSizes& s, std::int64_t last, DType dtype) {
  Dims wanted{s.batch, s.heads, s.rows};
  if (last > 0) wanted.push_back(last);
  TS_CHECK(x.sizes() == wanted && x.dtype() == dtype, op, "operand {} {}; {} {} is needed",
           name_of(x.dtype()), x.sizes().str(), name_of(dtype), wanted.str());
  TS_CHECK(x.numel() == 0 || (last > 0 ? last == 1 || x.stride(3) == 1 : x.is_contiguous()), op,
           "operand of sizes {} and strides {}; {}", x.sizes().str(), x.strides().str(),
           last > 0 ? "the last dim must have stride 1" : "it must be contiguous");
}

namespace {

void check_gradient(const char* op, const Array& gradient, const Array& x) {
  TS_CHECK(gradient.sizes() == x.sizes() && gradient.dtype() == accumulator_of(x.dtype()), op,
           "gradient {} {} for an operand {} {}; equal sizes and type {} are needed",
           name_of(gradient.dtype()), gradient.sizes().str(), name_of(x.dtype()), x.sizes().str(),
           name_of(accumulator_of(x.dtype())));
  TS_CHECK(gradient.numel() == 0 || gradient.size(3) == 1 || gradient.stride(3) == 1, op,
           "gradient of strides {}; the last dim must have stride 1", gradient.strides().str());
}

}  // namespace

AttentionSizes check_accumulate(const AttentionArgs& args) {
  const char* op = "attention_accumulate";
  const AttentionSizes s = attention_sizes(op, args.q, args.k, args.v, args.mask);
  const DType acc = accumulator_of(args.q.dtype());
  check_rows_of(op, args.o, s, s.dv, acc);
  check_rows_of(op, args.row_max, s, 0, acc);
  check_rows_of(op, args.row_sum, s, 0, acc);
  return s;
}

AttentionSizes check_forward(const AttentionForwardArgs& args) {
  const char* op = "attention";
  const AttentionSizes s = attention_sizes(op, args.q, args.k, args.v, args.mask);
  check_rows_of(op, args.out, s, s.dv, args.q.dtype());
  if (args.lse.defined()) check_rows_of(op, args.lse, s, 0, accumulator_of(args.q.dtype()));
  return s;
}

void check_finish(const AttentionFinishArgs& args) {
  const Array& o = args.o;
  TS_CHECK(args.out.sizes() == o.sizes() && o.dim() == 4, "attention_finish", "out {} for a state {}",
           args.out.sizes().str(), o.sizes().str());
  TS_CHECK(o.dtype() == accumulator_of(args.out.dtype()), "attention_finish",
           "out of type {} for a state of type {}", name_of(args.out.dtype()), name_of(o.dtype()));
}

void check_delta(const Array& delta, const Array& dout, const Array& out) {
  TS_CHECK(out.sizes() == dout.sizes() && out.dtype() == dout.dtype() && out.dim() == 4 &&
               delta.dtype() == accumulator_of(out.dtype()) &&
               delta.numel() == out.size(0) * out.size(1) * out.size(2),
           "attention_delta", "out {}, its gradient {}, delta {}", out.sizes().str(), dout.sizes().str(),
           delta.sizes().str());
}

AttentionSizes check_backward(const AttentionBackwardArgs& args) {
  const char* op = "attention_backward";
  const AttentionSizes s = attention_sizes(op, args.q, args.k, args.v, args.mask);
  const DType acc = accumulator_of(args.q.dtype());
  check_rows_of(op, args.dout, s, s.dv, args.q.dtype());
  check_rows_of(op, args.lse, s, 0, acc);
  check_rows_of(op, args.delta, s, 0, acc);
  if (args.out.defined()) check_rows_of(op, args.out, s, s.dv, args.q.dtype());
  check_gradient(op, args.dq, args.q);
  check_gradient(op, args.dk, args.k);
  check_gradient(op, args.dv, args.v);
  if (args.dmask.defined())
    TS_CHECK(args.dmask.sizes() == Dims({s.batch, s.heads, s.rows, s.keys}) && args.dmask.dtype() == acc &&
                 args.dmask.is_contiguous(),
             op, "gradient of the mask {} {}; contiguous {} {} is needed", name_of(args.dmask.dtype()),
             args.dmask.sizes().str(), name_of(acc), Dims({s.batch, s.heads, s.rows, s.keys}).str());
  return s;
}

void begin_sums(const AttentionBackwardArgs& args) {
  if (args.first_of_dq) fill(args.dq, 0.0);
  if (!args.first_of_keys) return;
  fill(args.dk, 0.0);
  fill(args.dv, 0.0);
}

void make_delta(const AttentionBackwardArgs& args, decltype(&attention_delta) make) {
  if (args.delta_made == nullptr || *args.delta_made) return;
  make(args.delta, args.dout, args.out);
  *args.delta_made = true;
}

Positions::Positions(const AttentionMask& mask, const AttentionSizes& sizes) {
  if (!mask.causal) return;
  if (mask.q_positions == nullptr || mask.k_positions == nullptr) {
    counted_.resize(static_cast<std::size_t>(std::max(sizes.rows, sizes.keys)));
    std::iota(counted_.begin(), counted_.end(), 0);
  }
  q = mask.q_positions != nullptr ? mask.q_positions : counted_.data();
  k = mask.k_positions != nullptr ? mask.k_positions : counted_.data();
}

PositionRange position_range(const std::int64_t* positions, std::int64_t first, std::int64_t n) {
  if (positions == nullptr || n == 0) return {};
  const auto [lo, hi] = std::minmax_element(positions + first, positions + first + n);
  return {*lo, *hi};
}

Visibility visibility(PositionRange q, PositionRange k) {
  if (k.hi <= q.lo) return Visibility::All;
  return k.lo > q.hi ? Visibility::None : Visibility::Some;
}

AttentionBlockMask block_mask(const Array& mask, std::int64_t n, std::int64_t h, std::int64_t q0,
                              std::int64_t k0) {
  AttentionBlockMask m{};
  if (!mask.defined()) return m;
  m.kind = mask.dtype() == DType::Bool   ? AttentionBlockMask::Keep
           : mask.dtype() == DType::BF16 ? AttentionBlockMask::AddBf16
           : mask.dtype() == DType::F16  ? AttentionBlockMask::AddF16
                                         : AttentionBlockMask::AddSame;
  m.row = mask.stride(2);
  m.col = mask.stride(3);
  m.data = static_cast<const char*>(mask.raw()) +
           (n * mask.stride(0) + h * mask.stride(1) + q0 * m.row + k0 * m.col) * size_of(mask.dtype());
  return m;
}

}  // namespace tessera::cpu
