#include <limits>

#include "ops/cpu/attention.h"
#include "ops/cpu/attention_dropout.h"
#include "runtime/error.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

// Few enough that a column of scores stays in the first-level cache while the tiles beside it go down the
// same lines: 192 rows cost 6 % of the time.
constexpr std::int64_t kQueryRows = 96;

// One piece of work is a key head with all its query heads: nobody else adds to its dk, dv and their dq.
template <class S>
class Backward {
 public:
  using T = Compute<S>;
  Backward(const AttentionBackwardArgs& args, const AttentionSizes& sizes)
      : a_(args),
        s_(sizes),
        positions_(args.mask, sizes),
        words_(args.mask.dropout),
        kernels_(blocks_of<T>(attention_table())) {
    d_padded_ = ceil_div(s_.d, kernels_.width) * kernels_.width;
    dv_padded_ = ceil_div(s_.dv, kernels_.width) * kernels_.width;
  }

  void run() {
    const double flops =
        10.0 * static_cast<double>(s_.batch * s_.heads * s_.rows) * static_cast<double>(s_.keys * s_.d);
    parallel_for(s_.batch * s_.key_heads, threads_for(flops), [&](std::int64_t job) {
      for (std::int64_t g = 0; g < s_.group(); ++g)
        one_head(job / s_.key_heads, job % s_.key_heads, job % s_.key_heads * s_.group() + g);
    });
  }

 private:
  void one_head(std::int64_t n, std::int64_t hk, std::int64_t h) {
    Workspace& space = Workspace::begin();
    AttentionBackwardBlock<T> b{};
    b.d = s_.d;
    b.dv = s_.dv;
    b.d_padded = d_padded_;
    b.dv_padded = dv_padded_;
    T* q = space.take<T>(s_.rows * d_padded_);
    scaled_rows<S>(head<S>(a_.q, n, h), a_.q.stride(2), s_.rows, s_.d, d_padded_, a_.scale, q);
    const auto dout = padded_rows<S>(head<S>(a_.dout, n, h), a_.dout.stride(2), s_.rows, s_.dv, dv_padded_,
                                     space.take<T>(s_.rows * dv_padded_));
    T* dq = space.take<T>(s_.rows * d_padded_);
    std::fill(dq, dq + s_.rows * d_padded_, T(0));
    b.q = q;
    b.q_row = d_padded_;
    b.dout = dout.data;
    b.dout_row = dout.row;
    b.grad_q = dq;
    b.grad_q_row = d_padded_;
    b.scores = space.take<T>(kQueryRows * kAttentionScoreRow);
    b.gradients = space.take<T>(kQueryRows * kAttentionScoreRow);
    b.grad_k = space.take<T>(kAttentionKeys * d_padded_);
    b.grad_v = space.take<T>(kAttentionKeys * dv_padded_);
    KeyScratch scratch{space.take<T>(2 * kAttentionKeys * s_.d), space.take<T>(2 * kAttentionKeys * s_.dv),
                       space.take<T>(kAttentionKeys * d_padded_), space.take<T>(kAttentionKeys * dv_padded_),
                       words_.take(space, kQueryRows)};
    for (std::int64_t k0 = 0; k0 < s_.keys; k0 += kAttentionKeys) {
      b.keys = std::min(kAttentionKeys, s_.keys - k0);
      key_block(b, scratch, {n, hk, h, k0});
    }
    add_rows(mutable_head<T>(a_.dq, n, h), a_.dq.stride(2), dq, s_.rows, s_.d, d_padded_,
             static_cast<T>(a_.scale));
  }

  struct KeyScratch {
    T* k_packed;
    T* v_packed;
    T* k_rows;
    T* v_rows;
    std::uint32_t* words;
  };
  struct At {
    std::int64_t n, hk, h, k0;
  };

  void key_block(AttentionBackwardBlock<T> b, const KeyScratch& scratch, const At& at) {
    const auto k = padded_rows<S>(head<S>(a_.k, at.n, at.hk, at.k0), a_.k.stride(2), b.keys, s_.d, d_padded_,
                                  scratch.k_rows);
    const auto v = padded_rows<S>(head<S>(a_.v, at.n, at.hk, at.k0), a_.v.stride(2), b.keys, s_.dv,
                                  dv_padded_, scratch.v_rows);
    kernels_.pack(scratch.k_packed, k.data, k.row, b.keys, s_.d);
    kernels_.pack(scratch.v_packed, v.data, v.row, b.keys, s_.dv);
    b.k = k.data;
    b.k_row = k.row;
    b.k_packed = scratch.k_packed;
    b.v_packed = scratch.v_packed;
    std::fill(b.grad_k, b.grad_k + b.keys * d_padded_, T(0));
    std::fill(b.grad_v, b.grad_v + b.keys * dv_padded_, T(0));
    const PositionRange k_range = position_range(positions_.k, at.k0, b.keys);
    for (std::int64_t q0 = 0; q0 < s_.rows; q0 += kQueryRows) query_block(b, at, k_range, q0, scratch.words);
    add_rows(mutable_head<T>(a_.dk, at.n, at.hk, at.k0), a_.dk.stride(2), b.grad_k, b.keys, s_.d, d_padded_,
             T(1));
    add_rows(mutable_head<T>(a_.dv, at.n, at.hk, at.k0), a_.dv.stride(2), b.grad_v, b.keys, s_.dv, dv_padded_,
             T(1));
  }

  void query_block(AttentionBackwardBlock<T> b, const At& at, PositionRange k_range, std::int64_t q0,
                   std::uint32_t* words) {
    b.rows = std::min(kQueryRows, s_.rows - q0);
    const Visibility seen =
        a_.mask.causal ? visibility(position_range(positions_.q, q0, b.rows), k_range) : Visibility::All;
    if (seen == Visibility::None) return;
    b.mask = block_mask(a_.mask.mask, at.n, at.h, q0, at.k0);
    if (seen == Visibility::Some) {
      b.mask.q_positions = positions_.q + q0;
      b.mask.k_positions = positions_.k + at.k0;
    }
    const std::int64_t row = (at.n * s_.heads + at.h) * s_.rows + q0;
    b.q += q0 * b.q_row;
    b.dout += q0 * b.dout_row;
    b.grad_q += q0 * b.grad_q_row;
    b.lse = a_.lse.data<T>() + row;
    b.delta = a_.delta.data<T>() + row;
    b.dropout = words_.template drawn<T>(words, {at.n, at.h, q0, b.rows, at.k0, b.keys});
    kernels_.backward(b);
    if (a_.dmask.defined()) {
      T* dmask = a_.dmask.data<T>() + row * s_.keys + at.k0;
      for (std::int64_t i = 0; i < b.rows; ++i)
        std::copy_n(b.gradients + i * kAttentionScoreRow, b.keys, dmask + i * s_.keys);
    }
    poll_progress();
  }

  static void add_rows(T* out, std::int64_t out_row, const T* x, std::int64_t rows, std::int64_t n,
                       std::int64_t padded, T factor) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < n; ++j) out[i * out_row + j] += factor * x[i * padded + j];
  }

  const AttentionBackwardArgs& a_;
  const AttentionSizes& s_;
  Positions positions_;
  WeightWords words_;
  const AttentionBlocks<T>& kernels_;
  std::int64_t d_padded_ = 0;
  std::int64_t dv_padded_ = 0;
};

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  const AttentionSizes s = check_backward(args);
  if (args.dmask.defined()) args.dmask.zero_();
  begin_sums(args);
  if (s.rows == 0 || s.keys == 0) return;
  make_delta(args, &attention_delta);
  dispatch_floating(args.q.dtype(), [&](auto tag) { Backward<typename decltype(tag)::type>(args, s).run(); });
}

}  // namespace tessera::cpu
