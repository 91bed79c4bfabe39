#include "ops/cpu/attention.h"

#include <cmath>
#include <limits>

#include "ops/cpu/attention_dropout.h"
#include "runtime/error.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

// Operands of both ways in: one call over all keys (out, lse) and one block of a longer sequence (state).
struct ForwardCall {
  Array q, k, v;
  Array o, row_max, row_sum;  // the state, or undefined
  Array out, lse;             // the result, or undefined
  double scale;
  AttentionMask mask;
};

template <class T>
struct RowState {
  T* o;
  std::int64_t o_row;
  T* row_max;
  T* row_sum;
};

template <class S>
class Forward {
 public:
  using T = Compute<S>;
  Forward(const ForwardCall& call, const AttentionSizes& sizes)
      : c_(call),
        s_(sizes),
        positions_(call.mask, sizes),
        words_(call.mask.dropout),
        kernels_(blocks_of<T>(attention_table())) {
    d_v_padded_ = ceil_div(s_.dv, kernels_.width) * kernels_.width;
    // Short pieces follow the diagonal of a causal mask more closely, and there must be enough for all
    // threads.
    block_ = c_.mask.causal ? std::min<std::int64_t>(kernels_.block_rows, 96) : kernels_.block_rows;
    const double flops =
        4.0 * static_cast<double>(s_.batch * s_.heads * s_.rows) * static_cast<double>(s_.keys * s_.d);
    threads_ = threads_for(flops);
    const std::int64_t heads = std::max<std::int64_t>(1, s_.batch * s_.heads);
    if (threads_ > 1) block_ = std::clamp<std::int64_t>(ceil_div(s_.rows * heads, 4 * threads_), 48, block_);
    block_ = ceil_div(block_, 6) * 6;
  }

  void run() {
    const std::int64_t blocks = ceil_div(s_.rows, block_);
    parallel_for(s_.batch * s_.heads * blocks, threads_, [&](std::int64_t job) {
      const std::int64_t q0 = job % blocks * block_;
      const std::int64_t h = job / blocks % s_.heads;
      rows(job / blocks / s_.heads, h, q0, std::min(block_, s_.rows - q0));
    });
  }

 private:
  void rows(std::int64_t n, std::int64_t h, std::int64_t q0, std::int64_t count) {
    Workspace& space = Workspace::begin();
    AttentionForwardBlock<T> b{};
    T* q = space.take<T>(count * s_.d);
    scaled_rows<S>(head<S>(c_.q, n, h, q0), c_.q.stride(2), count, s_.d, s_.d, c_.scale, q);
    b.q = q;
    b.q_row = s_.d;
    b.scores = space.take<T>(count * kAttentionScoreRow);
    b.o_row = d_v_padded_;
    b.o = space.take<T>(count * d_v_padded_);
    b.row_max = space.take<T>(count);
    b.row_sum = space.take<T>(count);
    b.rows = count;
    b.d = s_.d;
    b.dv_padded = d_v_padded_;
    load_state(b, n, h, q0);
    key_blocks(b, space, n, h, q0);
    if (c_.out.defined()) {
      finish(b, n, h, q0);
    } else {
      store_state(b, n, h, q0);
    }
  }

  void key_blocks(AttentionForwardBlock<T>& b, Workspace& space, std::int64_t n, std::int64_t h,
                  std::int64_t q0) {
    const std::int64_t hk = h / s_.group();
    T* packed = space.take<T>(2 * kAttentionKeys * s_.d);
    T* k_rows = space.take<T>(kAttentionKeys * s_.d);
    T* v_rows = space.take<T>(kAttentionKeys * d_v_padded_);
    std::uint32_t* words = words_.take(space, b.rows);
    const PositionRange q_range = position_range(positions_.q, q0, b.rows);
    for (std::int64_t k0 = 0; k0 < s_.keys; k0 += kAttentionKeys) {
      b.keys = std::min(kAttentionKeys, s_.keys - k0);
      const PositionRange k_range = position_range(positions_.k, k0, b.keys);
      const Visibility seen = c_.mask.causal ? visibility(q_range, k_range) : Visibility::All;
      if (seen == Visibility::None) continue;
      b.mask = block_mask(c_.mask.mask, n, h, q0, k0);
      if (seen == Visibility::Some) {
        b.mask.q_positions = positions_.q + q0;
        b.mask.k_positions = positions_.k + k0;
      }
      const auto k = padded_rows<S>(head<S>(c_.k, n, hk, k0), c_.k.stride(2), b.keys, s_.d, s_.d, k_rows);
      kernels_.pack(packed, k.data, k.row, b.keys, s_.d);
      b.k_packed = packed;
      const auto v =
          padded_rows<S>(head<S>(c_.v, n, hk, k0), c_.v.stride(2), b.keys, s_.dv, d_v_padded_, v_rows);
      b.v = v.data;
      b.v_row = v.row;
      b.dropout = words_.template drawn<T>(words, {n, h, q0, b.rows, k0, b.keys});
      kernels_.forward(b);
      poll_progress();
    }
  }

  std::int64_t state_index(std::int64_t n, std::int64_t h, std::int64_t q0) const {
    return (n * s_.heads + h) * s_.rows + q0;
  }

  void load_state(const AttentionForwardBlock<T>& b, std::int64_t n, std::int64_t h, std::int64_t q0) const {
    if (!c_.o.defined()) {
      std::fill(b.o, b.o + b.rows * b.o_row, T(0));
      std::fill(b.row_max, b.row_max + b.rows, -std::numeric_limits<T>::infinity());
      std::fill(b.row_sum, b.row_sum + b.rows, T(0));
      return;
    }
    const std::int64_t at = state_index(n, h, q0);
    std::copy_n(c_.row_max.data<T>() + at, b.rows, b.row_max);
    std::copy_n(c_.row_sum.data<T>() + at, b.rows, b.row_sum);
    const T* o = head<T>(c_.o, n, h, q0);
    for (std::int64_t i = 0; i < b.rows; ++i) {
      std::copy_n(o + i * c_.o.stride(2), s_.dv, b.o + i * b.o_row);
      std::fill(b.o + i * b.o_row + s_.dv, b.o + (i + 1) * b.o_row, T(0));
    }
  }

  void store_state(const AttentionForwardBlock<T>& b, std::int64_t n, std::int64_t h, std::int64_t q0) const {
    const std::int64_t at = state_index(n, h, q0);
    std::copy_n(b.row_max, b.rows, c_.row_max.data<T>() + at);
    std::copy_n(b.row_sum, b.rows, c_.row_sum.data<T>() + at);
    T* o = mutable_head<T>(c_.o, n, h, q0);
    for (std::int64_t i = 0; i < b.rows; ++i) std::copy_n(b.o + i * b.o_row, s_.dv, o + i * c_.o.stride(2));
  }

  void finish(const AttentionForwardBlock<T>& b, std::int64_t n, std::int64_t h, std::int64_t q0) const {
    S* out = mutable_head<S>(c_.out, n, h, q0);
    T* lse = c_.lse.defined() ? c_.lse.data<T>() + state_index(n, h, q0) : nullptr;
    for (std::int64_t i = 0; i < b.rows; ++i) {
      const T sum = b.row_sum[i];
      const T factor = sum == T(0) ? T(0) : T(1) / sum;
      T* o = b.o + i * b.o_row;
      for (std::int64_t j = 0; j < s_.dv; ++j) o[j] *= factor;
      store_block<S>(out + i * c_.out.stride(2), 1, o, s_.dv);
      if (lse != nullptr)
        lse[i] = sum == T(0) ? -std::numeric_limits<T>::infinity() : b.row_max[i] + std::log(sum);
    }
  }

  const ForwardCall& c_;
  const AttentionSizes& s_;
  Positions positions_;
  WeightWords words_;
  const AttentionBlocks<T>& kernels_;
  std::int64_t d_v_padded_ = 0;
  std::int64_t block_ = 0;
  int threads_ = 1;
};

void run(const ForwardCall& call, const AttentionSizes& sizes) {
  dispatch_floating(call.q.dtype(),
                    [&](auto tag) { Forward<typename decltype(tag)::type>(call, sizes).run(); });
}

// f(first row of [n, h], number of rows, dtype's tag) over all heads, threads by work.
template <class F>
void for_each_head(const Array& x, const F& f) {
  const double work = static_cast<double>(x.numel());
  parallel_for(x.size(0) * x.size(1), threads_for(work),
               [&](std::int64_t i) { f(i / x.size(1), i % x.size(1)); });
}

}  // namespace

void attention_init(const Array& o, const Array& row_max, const Array& row_sum) {
  o.zero_();
  row_sum.zero_();
  row_max.fill_(-std::numeric_limits<double>::infinity());
}

void attention_accumulate(const AttentionArgs& args) {
  const AttentionSizes s = check_accumulate(args);
  if (s.rows == 0 || s.keys == 0) return;
  run({args.q, args.k, args.v, args.o, args.row_max, args.row_sum, {}, {}, args.scale, args.mask}, s);
}

void attention_forward(const AttentionForwardArgs& args) {
  const AttentionSizes s = check_forward(args);
  if (s.rows == 0) return;
  run({args.q, args.k, args.v, {}, {}, {}, args.out, args.lse, args.scale, args.mask}, s);
}

void attention_finish(const AttentionFinishArgs& args) {
  check_finish(args);
  const Array& o = args.o;
  dispatch_floating(args.out.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    for_each_head(o, [&](std::int64_t n, std::int64_t h) {
      const std::int64_t at = (n * o.size(1) + h) * o.size(2);
      for (std::int64_t i = 0; i < o.size(2); ++i) {
        const T sum = args.row_sum.data<T>()[at + i];
        const T factor = sum == T(0) ? T(0) : T(1) / sum;
        const T* from = head<T>(o, n, h, i);
        S* to = mutable_head<S>(args.out, n, h, i);
        for (std::int64_t j = 0; j < o.size(3); ++j) to[j] = static_cast<S>(from[j] * factor);
        if (args.lse.defined())
          args.lse.data<T>()[at + i] = sum == T(0) ? -std::numeric_limits<T>::infinity()
                                                   : args.row_max.data<T>()[at + i] + std::log(sum);
      }
    });
  });
}

void attention_delta(const Array& delta, const Array& dout, const Array& out) {
  check_delta(delta, dout, out);
  dispatch_floating(out.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    constexpr std::int64_t kRowsAtOnce = 64;  // a multiple of every panel's
    const std::int64_t rows = out.size(2);
    const std::int64_t dv = out.size(3);
    const AttentionBlocks<T>& kernels = blocks_of<T>(attention_table());
    for_each_head(out, [&](std::int64_t n, std::int64_t h) {
      Workspace& space = Workspace::begin();
      T* scratch = space.take<T>(kRowsAtOnce * dv);
      T* packed = space.take<T>(2 * kRowsAtOnce * dv);
      T* to = delta.data<T>() + (n * out.size(1) + h) * rows;
      for (std::int64_t i = 0; i < rows; i += kRowsAtOnce) {
        const std::int64_t some = std::min(kRowsAtOnce, rows - i);
        const auto pack = [&](T* into, const Array& x) {
          const auto r = padded_rows<S>(head<S>(x, n, h, i), x.stride(2), some, dv, dv, scratch);
          kernels.pack(into, r.data, r.row, some, dv);
        };
        pack(packed, out);
        pack(packed + kRowsAtOnce * dv, dout);
        kernels.row_products(to + i, packed, packed + kRowsAtOnce * dv, some, dv);
      }
    });
  });
}

}  // namespace tessera::cpu
