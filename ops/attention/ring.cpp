#include "ops/attention/ring.h"

#include <limits>

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"
#include "ops/kernels.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

DType accumulator(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

// Everything that is made here, [N, H, L, E], has tokens outermost in memory, so that merging the heads again
// is a view, of results and of gradients.
Array tokens_outermost(const Array& flat, const Dims& sizes) {
  return flat.reshape({sizes[0], sizes[2], sizes[1], sizes[3]}).transpose(1, 2);
}

// Keys and values of one rank in one message.
class Block {
 public:
  Block() = default;
  Block(const Dims& k, const Dims& v, DType dtype, Device device)
      : Block(Array::empty({numel_of(k) + numel_of(v)}, dtype, device), k, v) {}
  Block(const Array& flat, const Dims& k, const Dims& v)
      : flat_(flat),
        k_(tokens_outermost(flat_.slice(0, 0, numel_of(k)), k)),
        v_(tokens_outermost(flat_.slice(0, numel_of(k), numel_of(v)), v)) {}
  const Array& k() const { return k_; }
  const Array& v() const { return v_; }
  const Array& flat() const { return flat_; }
  Block to(DType dtype) const { return {flat_.to(dtype), k_.sizes(), v_.sizes()}; }

 private:
  Array flat_, k_, v_;
};

// The walk round the ring as one rank sees it.
class Ring {
 public:
  Ring(const RingSetup& s, const Array& k, const Array& v) : s_(s), k_(k), v_(v) {
    if (s.plan == nullptr || s.plan->ring == 0) return;
    size_ = static_cast<int>(s.plan->ranks.size());
    comm_ = s.plan->k->mesh_core()->groups[s.plan->ring];
  }

  int size() const { return size_; }
  int source(int step) const { return size_ == 1 ? 0 : (s_.plan->place - step % size_ + size_) % size_; }
  Intervals keys(int step) const {
    if (s_.plan == nullptr) return {{0, k_.size(2)}};
    return s_.plan->k->intervals(2, s_.plan->ranks[static_cast<std::size_t>(source(step))]);
  }
  // Of a sharded call: batch, heads or rows.
  Intervals queries(int dim) const { return s_.plan->q->intervals(dim); }

  Block make_block(int step, DType dtype) const {
    Dims k = k_.sizes();
    Dims v = v_.sizes();
    k[2] = v[2] = total_length(keys(step));
    return {k, v, dtype, k_.device()};
  }
  Block own_block() const {
    Block b = make_block(0, k_.dtype());
    copy_strided(b.k(), k_);
    copy_strided(b.v(), v_);
    return b;
  }
  // Hands `send` to the next rank while `recv` comes from the one before.
  Work pass(const Array& send, const Array& recv) const {
    const int next = (s_.plan->place + 1) % size_;
    const int before = (s_.plan->place + size_ - 1) % size_;
    std::vector<SendBuffer> sends;
    std::vector<RecvBuffer> recvs;
    if (send.numel() > 0) sends.push_back({next, send.raw(), send.nbytes()});
    if (recv.numel() > 0) recvs.push_back({before, recv.raw(), recv.nbytes()});
    Work w = comm_.exchange(sends, recvs, k_.device());
    w.keep(send);
    w.keep(recv);
    return w;
  }

 private:
  const RingSetup& s_;
  const Array& k_;
  const Array& v_;
  int size_ = 1;
  Communicator comm_;
};

// Masks of one block: positions for the causal rule and for dropout, columns of the mask.
struct BlockMask {
  std::vector<std::int64_t> positions[4];  // of the batch, heads, rows and keys, where they are needed
  cpu::AttentionMask mask;
  BlockMask(const BlockMask&) = delete;
  BlockMask& operator=(const BlockMask&) = delete;

  // `full`: the mask over all keys.
  BlockMask(const RingSetup& s, const Ring& ring, int step, const Array& full) {
    mask.causal = s.causal;
    mask.dropout = s.dropout;
    if (s.plan == nullptr) {  // positions count from 0 on
      mask.mask = full;
      return;
    }
    const Intervals keys = ring.keys(step);
    for (int d = 0; d < 4; ++d) {
      if (!s.dropout.any() && !(s.causal && d >= 2)) continue;
      positions[d] = positions_of(d < 3 ? ring.queries(d) : keys);
      mask.dropout.positions[d] = positions[d].data();
    }
    if (s.causal) {
      mask.q_positions = positions[2].data();
      mask.k_positions = positions[3].data();
    }
    if (!full.defined()) return;
    if (keys.size() == 1) {
      mask.mask = full.slice(3, keys[0].lo, keys[0].length());
      return;
    }
    Dims sizes = full.sizes();
    sizes[3] = total_length(keys);
    mask.mask = Array::empty(sizes, full.dtype(), full.device());
    std::int64_t at = 0;
    for (Interval i : keys) {
      copy_strided(mask.mask.slice(3, at, i.length()), full.slice(3, i.lo, i.length()));
      at += i.length();
    }
  }
  // No query of a sharded call may see any key of the block.
  bool nothing() const {
    const auto& [batch, heads, rows, keys] = positions;
    if (!mask.causal || rows.empty() || keys.empty()) return mask.causal;
    return *std::min_element(keys.begin(), keys.end()) > *std::max_element(rows.begin(), rows.end());
  }
};

Array expanded_mask(const Array& mask, const Array& q, std::int64_t keys) {
  if (!mask.defined()) return mask;
  return mask.expand({q.size(0), q.size(1), q.size(2), keys});
}

std::int64_t all_keys(const RingSetup& s, const Array& k) {
  return s.plan == nullptr ? k.size(2) : s.plan->k->sizes()[2];
}

Dims output_sizes(const Array& q, const Array& v) { return {q.size(0), q.size(1), q.size(2), v.size(3)}; }

Array empty_output(const Dims& sizes, DType dtype, Device device) {
  return tokens_outermost(Array::empty({numel_of(sizes)}, dtype, device), sizes);
}

Array last_dim_dense(const Array& a) { return a.size(3) <= 1 || a.stride(3) == 1 ? a : a.contiguous(); }

}  // namespace

RingForward ring_forward(const RingSetup& s, const Array& q_in, const Array& k_in, const Array& v_in,
                         const Array& mask) {
  const Array q = last_dim_dense(q_in);
  const Array k = last_dim_dense(k_in);
  const Array v = last_dim_dense(v_in);
  const Device device = q.device();
  const DType acc = accumulator(q.dtype());
  const Dims out_sizes = output_sizes(q, v);
  const Dims rows{q.size(0), q.size(1), q.size(2)};
  RingForward result{empty_output(out_sizes, q.dtype(), device), Array::empty(rows, acc, device)};
  if (v.size(3) == 0) {  // rows without columns: nothing to find out from anybody
    fill(result.lse, -std::numeric_limits<double>::infinity());
    return result;
  }
  const Array full_mask = expanded_mask(mask, q, all_keys(s, k));
  const Ring ring(s, k, v);
  if (ring.size() == 1) {
    const BlockMask m(s, ring, 0, full_mask);
    kernels::attention_forward(device, {result.out, result.lse, q, k, v, s.scale, m.mask});
    return result;
  }
  const Array o = empty_output(out_sizes, acc, device);
  const Array row_max = Array::empty(rows, acc, device);
  const Array row_sum = Array::empty(rows, acc, device);
  kernels::attention_init(device, o, row_max, row_sum);
  Block block = ring.own_block();
  for (int step = 0; step < ring.size(); ++step) {
    Block next;
    Work under_way;
    if (step + 1 < ring.size()) {
      next = ring.make_block(step + 1, k.dtype());
      under_way = ring.pass(block.flat(), next.flat());
    }
    const BlockMask m(s, ring, step, full_mask);
    if (!m.nothing())
      kernels::attention_accumulate(device, {q, block.k(), block.v(), o, row_max, row_sum, s.scale, m.mask});
    under_way.wait();
    block = next;
  }
  kernels::attention_finish(device, {result.out, result.lse, o, row_max, row_sum});
  return result;
}

namespace {

// One block of keys and values, and what becomes of its gradients.
struct BackwardStep {
  const Block& block;
  const Block& gradients;  // written
  const BlockMask& mask;
  const Intervals& keys;
  bool in_place;  // the operands' own keys, in order: the mask's gradient is written where it belongs
  bool first;     // that gives anything to dq
};

// Of the result and its gradient: made where the first kernel reads it.
struct Delta {
  Array values;
  bool made = false;
};

// The block's gradients, also added into dq and the mask's columns.
void backward_block(const RingSetup& s, const RingBackwardIn& in, Delta& delta, const BackwardStep& b,
                    const RingBackward& out) {
  const Device device = in.q.device();
  const auto call = [&](const Array& k, const Array& v, const Array& columns) {
    kernels::attention_backward(
        device, {out.dq, b.gradients.k(), b.gradients.v(), columns, in.dout, in.q, k, v, in.lse, delta.values,
                 s.scale, b.mask.mask, in.out, b.first, true, &delta.made});
  };
  if (b.in_place) return call(in.k, in.v, out.dmask);
  Array columns;
  if (out.dmask.defined())
    columns = Array::zeros({in.q.size(0), in.q.size(1), in.q.size(2), b.block.k().size(2)}, out.dmask.dtype(),
                           device);
  call(b.block.k(), b.block.v(), columns);
  std::int64_t at = 0;
  for (Interval i : b.keys) {
    if (columns.defined())
      copy_strided(out.dmask.slice(3, i.lo, i.length()), columns.slice(3, at, i.length()));
    at += i.length();
  }
}

}  // namespace

namespace {

// Of a result without columns.
RingBackward no_gradients(const RingSetup& s, const RingBackwardIn& in) {
  const auto zeros = [&](const Dims& sizes) { return Array::zeros(sizes, in.q.dtype(), in.q.device()); };
  RingBackward out{zeros(in.q.sizes()), zeros(in.k.sizes()), zeros(in.v.sizes()), Array()};
  if (in.mask_gradient) out.dmask = zeros({in.q.size(0), in.q.size(1), in.q.size(2), all_keys(s, in.k)});
  return out;
}

// The gradients of keys and values on their way round, one step behind the block that they belong to.
class KeyGradients {
 public:
  explicit KeyGradients(const Ring& ring) : ring_(ring) {}

  // What this rank adds to those of the block of `step`.
  void add(int step, const Block& terms, DType accumulated) {
    if (step == 0) {
      own_ = terms;
      return;
    }
    if (step >= 2) {
      under_way_.wait();
      add_into(terms.flat(), arriving_.flat());
    }
    arriving_ = ring_.make_block(step + 1, accumulated);
    under_way_ = ring_.pass(terms.flat(), arriving_.flat());
  }
  // Those of this rank's own block, from all ranks.
  Block finish(DType dtype) {
    if (ring_.size() > 1) {
      under_way_.wait();
      add_into(own_.flat(), arriving_.flat());
    }
    return own_.to(dtype);
  }

 private:
  const Ring& ring_;
  Block own_;
  Block arriving_;  // the sum so far of the gradients of the block at hand
  Work under_way_;
};

}  // namespace

RingBackward ring_backward(const RingSetup& s, const RingBackwardIn& given) {
  if (given.v.size(3) == 0) return no_gradients(s, given);
  RingBackwardIn in = given;
  for (Array* a : {&in.dout, &in.q, &in.k, &in.v, &in.out}) *a = last_dim_dense(*a);
  const Device device = in.q.device();
  const DType acc = accumulator(in.q.dtype());
  const Array full_mask = expanded_mask(in.mask, in.q, all_keys(s, in.k));
  Delta delta{Array::empty({in.q.size(0), in.q.size(1), in.q.size(2)}, acc, device)};
  RingBackward out;
  out.dq = empty_output(in.q.sizes(), acc, device);
  if (in.mask_gradient)
    out.dmask = Array::zeros({in.q.size(0), in.q.size(1), in.q.size(2), all_keys(s, in.k)}, acc, device);
  const Ring ring(s, in.k, in.v);
  // Where the keys lie in order they are used as they are.
  const bool in_place = ring.size() == 1 && ring.keys(0).size() <= 1;
  Block block = in_place ? Block() : ring.own_block();
  KeyGradients gradients(ring);
  bool first = true;
  for (int step = 0; step < ring.size(); ++step) {
    Block next;
    Work under_way;
    if (step + 1 < ring.size()) {
      next = ring.make_block(step + 1, in.k.dtype());
      under_way = ring.pass(block.flat(), next.flat());
    }
    const Block terms = ring.make_block(step, acc);
    const Intervals keys = ring.keys(step);
    const BlockMask m(s, ring, step, full_mask);
    if (in_place || !m.nothing()) {
      backward_block(s, in, delta, {block, terms, m, keys, in_place, first}, out);
      first = false;
    } else {
      fill(terms.flat(), 0.0);
    }
    if (in.key_gradients) gradients.add(step, terms, acc);
    under_way.wait();
    block = next;
  }
  if (first) fill(out.dq, 0.0);
  out.dq = out.dq.to(in.q.dtype());
  const Block own = in.key_gradients ? gradients.finish(in.k.dtype()) : ring.make_block(0, in.k.dtype());
  out.dk = own.k();
  out.dv = own.v();
  return out;
}

}  // namespace tessera
