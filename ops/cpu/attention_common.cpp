#include "ops/cpu/attention_common.h"

#include <numeric>

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
                                         : AttentionBlockMask::AddSame;
  m.row = mask.stride(2);
  m.col = mask.stride(3);
  m.data = static_cast<const char*>(mask.raw()) +
           (n * mask.stride(0) + h * mask.stride(1) + q0 * m.row + k0 * m.col) * size_of(mask.dtype());
  return m;
}

}  // namespace tessera::cpu
