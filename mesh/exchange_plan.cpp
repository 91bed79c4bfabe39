#include "mesh/exchange_plan.h"

#include <cstring>
#include <limits>
#include <optional>

#include "comm/reduce.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera {
namespace {

struct Overlap {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t length = 0;
};

std::vector<Overlap> overlaps(const std::vector<Segment>& from, const std::vector<Segment>& to) {
  std::vector<Overlap> list;
  for (const Segment& t : to)
    for (const Segment& f : from) {
      const std::int64_t lo = std::max(t.global, f.global);
      const std::int64_t hi = std::min(t.global + t.length, f.global + f.length);
      if (lo < hi) list.push_back({f.local + lo - f.global, t.local + lo - t.global, hi - lo});
    }
  return list;
}

// The boxes that `from` and `to` share: the product of the dims' overlaps.
PeerPieces shared_pieces(int peer, const LocalLayout& from, const LocalLayout& to) {
  PeerPieces result;
  result.peer = peer;
  const std::size_t dims = from.dims.size();
  std::vector<std::vector<Overlap>> per_dim(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    per_dim[d] = overlaps(from.dims[d], to.dims[d]);
    if (per_dim[d].empty()) return result;
  }
  std::size_t boxes = 1;
  for (const std::vector<Overlap>& list : per_dim) boxes *= list.size();
  result.pieces.reserve(boxes);
  std::vector<std::size_t> index(dims, 0);
  while (true) {
    ExchangePiece piece;
    std::int64_t count = 1;
    for (std::size_t d = 0; d < dims; ++d) {
      const Overlap& o = per_dim[d][index[d]];
      piece.from.push_back(o.from);
      piece.to.push_back(o.to);
      piece.extent.push_back(o.length);
      count *= o.length;
    }
    result.elements += count;
    result.pieces.push_back(piece);
    std::size_t d = dims;
    while (d > 0 && ++index[d - 1] == per_dim[d - 1].size()) index[--d] = 0;
    if (d == 0) return result;
  }
}

bool share_elements(const LocalLayout& from, const LocalLayout& to) {
  for (std::size_t d = 0; d < from.dims.size(); ++d)
    if (overlaps(from.dims[d], to.dims[d]).empty()) return false;
  return true;
}

// Whether no rank has anything for another one.
bool nobody_sends(const ExchangeProblem& problem) {
  if (problem.ranks == 1) return true;
  std::vector<LocalLayout> to;
  to.reserve(static_cast<std::size_t>(problem.ranks));
  for (int r = 0; r < problem.ranks; ++r) to.push_back(problem.to(r));
  for (int a = 0; a < problem.ranks; ++a) {
    const LocalLayout from = problem.from(a);
    for (int b = 0; b < problem.ranks; ++b)
      if (a != b && problem.matches(a, b) && share_elements(from, to[static_cast<std::size_t>(b)]))
        return false;
  }
  return true;
}

// What changes nothing when it is combined with any value. Integers have no infinity: their own bounds.
template <class T>
T identity_of(ReduceOp op) {
  using Limits = std::numeric_limits<std::conditional_t<kHalf<T>, float, T>>;
  constexpr auto kLeast = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  constexpr auto kMost = Limits::has_infinity ? Limits::infinity() : Limits::max();
  switch (op) {
    case ReduceOp::Max:
      return T(kLeast);
    case ReduceOp::Min:
      return T(kMost);
    case ReduceOp::Product:
      return T(1);
    case ReduceOp::Sum:
      break;
  }
  return T();
}

// target = target op piece; Sum adds in the target's dtype (float32 for pieces of bf16 and f16).
void combine_into(const Array& target, const Array& piece, ReduceOp op) {
  if (target.device() == Device::Meta || target.numel() == 0) return;
  if (op == ReduceOp::Sum) {
    add_into(target, piece);
    return;
  }
  const Array a = target.contiguous();
  const Array b = piece.to(a.dtype()).contiguous();
  const void* both[] = {a.raw(), b.raw()};
  reduce_blocks({a.dtype(), op, both, a.raw(), a.numel(), a.device()});
  if (!target.is_contiguous()) copy_strided(target, a);
}

std::int64_t covered(const ExchangePlan& plan) {
  std::int64_t count = plan.own.elements;
  for (const PeerPieces& r : plan.recvs) count += r.elements;
  return count;
}

std::vector<Array> views(const Array& buffer, const PeerPieces& peer, bool destination) {
  std::vector<Array> list;
  list.reserve(peer.pieces.size());
  for (const ExchangePiece& p : peer.pieces)
    list.push_back(buffer.box(destination ? p.to : p.from, p.extent));
  return list;
}

// Where a box of a buffer that is one dense run (in the order of packing) starts, in elements from the
// buffer's element 0; nothing if it is not. No view is made: small messages pay for every allocation.
std::optional<std::int64_t> dense_run(const Array& buffer, const Dims& at, const Dims& extent,
                                      const Dims& order) {
  std::int64_t offset = 0;
  std::int64_t run = 1;
  for (int i = extent.size() - 1; i >= 0; --i) {
    const int d = order.empty() ? i : static_cast<int>(order[i]);
    if (extent[d] > 1 && buffer.stride(d) != run) return std::nullopt;
    run *= extent[d];
    offset += at[d] * buffer.stride(d);
  }
  return offset;
}

char* element(const Array& buffer, std::int64_t offset) {
  return static_cast<char*>(buffer.raw()) + (buffer.raw() == nullptr ? 0 : offset * size_of(buffer.dtype()));
}

void copy_own(const ExchangePiece& p, const Array& to, const Array& from) {
  const auto target = dense_run(to, p.to, p.extent, {});
  const auto source = dense_run(from, p.from, p.extent, {});
  if (target && source && to.device() == Device::Cpu && from.device() == Device::Cpu &&
      to.dtype() == from.dtype()) {
    const std::int64_t bytes = numel_of(p.extent) * size_of(to.dtype());
    std::memcpy(element(to, *target), element(from, *source), static_cast<std::size_t>(bytes));
    return;
  }
  copy_strided(to.box(p.to, p.extent), from.box(p.from, p.extent));
}

Array in_order(const Array& view, const Dims& order) { return order.empty() ? view : view.permute(order); }

// One message for all pieces: the view itself where it is one dense run, else packed one after another.
Array pack(const std::vector<Array>& pieces, std::int64_t elements, const Dims& order) {
  if (pieces.size() == 1) {
    Array v = in_order(pieces.front(), order);
    if (v.is_contiguous()) return v.reshape({elements});
  }
  Array packed = Array::empty({elements}, pieces.front().dtype(), pieces.front().device());
  std::int64_t at = 0;
  for (const Array& piece : pieces) {
    Array v = in_order(piece, order);
    copy_strided(packed.slice(0, at, v.numel()).reshape(v.sizes()), v);
    at += v.numel();
  }
  return packed;
}

}  // namespace

std::int64_t ExchangePlan::sent_elements() const {
  std::int64_t n = 0;
  for (const PeerPieces& s : sends) n += s.elements;
  return n;
}

ExchangePlan plan_exchange(const ExchangeProblem& problem) {
  ExchangePlan plan;
  plan.rank = problem.rank;
  const LocalLayout my_from = problem.from(problem.rank);
  const LocalLayout my_to = problem.to(problem.rank);
  plan.from_sizes = my_from.sizes;
  plan.to_sizes = my_to.sizes;
  plan.own.peer = problem.rank;
  for (int r = 0; r < problem.ranks; ++r) {
    if (r == problem.rank) {
      if (problem.matches(r, r)) plan.own = shared_pieces(r, my_from, my_to);
      continue;
    }
    if (problem.matches(problem.rank, r))
      if (PeerPieces s = shared_pieces(r, my_from, problem.to(r)); s.elements > 0)
        plan.sends.push_back(std::move(s));
    if (problem.matches(r, problem.rank))
      if (PeerPieces s = shared_pieces(r, problem.from(r), my_to); s.elements > 0)
        plan.recvs.push_back(std::move(s));
  }
  plan.covers = covered(plan) >= numel_of(plan.to_sizes);
  plan.silent = plan.sends.empty() && plan.recvs.empty() && nobody_sends(problem);
  return plan;
}

// Pieces that come one after another in one message. Sums wait until all messages are there, so that they are
// added in rank order; other pieces are placed when the transport has them.
struct ExchangeInFlight::Pending : Placing {
  int peer = 0;
  Array packed;
  std::vector<Array> targets;  // in the order of packing
  bool placed = false;

  void place(const void* bytes) override {
    unpack(Array::wrap(const_cast<void*>(bytes), packed.sizes(), packed.strides(), packed.dtype()), false);
    placed = true;
  }
  void unpack(const Array& from, bool add) const {
    std::int64_t at = 0;
    for (const Array& target : targets) {
      const Array piece = from.slice(0, at, target.numel()).reshape(target.sizes());
      if (add) {
        add_into(target, piece);
      } else {
        copy_strided(target, piece);
      }
      at += target.numel();
    }
  }
};

void ExchangeInFlight::finish() {
  work_.wait();
  bool own_done = !add_;
  auto add_own = [&] {
    for (auto& [to, from] : own_) add_into(to, from);
    own_done = true;
  };
  for (const std::shared_ptr<Pending>& p : pending_) {
    if (!own_done && p->peer > rank_) add_own();
    if (!p->placed) p->unpack(p->packed, add_);
  }
  if (!own_done) add_own();
  pending_.clear();
  own_.clear();
  work_ = Work();
}

ExchangeInFlight start_exchange(const ExchangePlan& plan, const Communicator& comm, const Array& to,
                                const Array& from, const Dims& order) {
  ExchangeInFlight flight;
  flight.rank_ = plan.rank;
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::vector<Array> kept;
  sends.reserve(plan.sends.size());
  recvs.reserve(plan.recvs.size());
  const std::int64_t item = size_of(to.dtype());
  for (const PeerPieces& r : plan.recvs) {
    if (r.pieces.size() == 1) {
      if (const auto run = dense_run(to, r.pieces[0].to, r.pieces[0].extent, order)) {
        recvs.push_back({r.peer, element(to, *run), r.elements * item});
        continue;
      }
    }
    auto p = std::make_shared<ExchangeInFlight::Pending>();
    p->peer = r.peer;
    p->targets = views(to, r, true);
    for (Array& target : p->targets) target = in_order(target, order);
    p->packed = Array::empty({r.elements}, to.dtype(), to.device());
    recvs.push_back({r.peer, p->packed.raw(), r.elements * item, to.device() == Device::Cpu ? p : nullptr});
    flight.pending_.push_back(std::move(p));
  }
  for (const PeerPieces& s : plan.sends) {
    if (s.pieces.size() == 1) {
      if (const auto run = dense_run(from, s.pieces[0].from, s.pieces[0].extent, order)) {
        sends.push_back({s.peer, element(from, *run), s.elements * item});
        continue;
      }
    }
    kept.push_back(pack(views(from, s, false), s.elements, order));
    sends.push_back({s.peer, kept.back().raw(), s.elements * item});
  }
  if (!plan.local_only()) {
    flight.work_ = comm.exchange(sends, recvs, to.device());
    // An exception may drop the buffers before the work.
    for (Array& a : kept) flight.work_.keep(std::move(a));
    for (const auto& p : flight.pending_) flight.work_.keep(p->packed);
    flight.work_.keep(to);
    flight.work_.keep(from);
    flight.work_.done();  // answers a peer that was faster before the own part is copied
  }
  for (const ExchangePiece& p : plan.own.pieces) copy_own(p, to, from);
  return flight;
}

ExchangeInFlight start_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                               const Array& to) {
  ExchangeInFlight flight;
  flight.rank_ = plan.rank;
  flight.add_ = true;
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::vector<Array> kept;
  for (const PeerPieces& s : plan.sends) {  // what was sent comes back
    auto p = std::make_shared<ExchangeInFlight::Pending>();
    p->peer = s.peer;
    p->targets = views(from, s, false);
    p->packed = Array::empty({s.elements}, from.dtype(), from.device());
    recvs.push_back({s.peer, p->packed.raw(), s.elements * size_of(from.dtype()), nullptr});
    flight.pending_.push_back(std::move(p));
  }
  for (const PeerPieces& r : plan.recvs) {
    kept.push_back(pack(views(to, r, true), r.elements, {}));
    sends.push_back({r.peer, kept.back().raw(), r.elements * size_of(to.dtype())});
  }
  if (!plan.local_only()) flight.work_ = comm.exchange(sends, recvs, to.device());
  for (Array& a : kept) flight.work_.keep(std::move(a));
  for (const auto& p : flight.pending_) flight.work_.keep(p->packed);
  for (const ExchangePiece& p : plan.own.pieces)
    flight.own_.emplace_back(from.box(p.from, p.extent), to.box(p.to, p.extent));
  return flight;
}

void fill_identity(const Array& target, ReduceOp op) {
  if (target.device() == Device::Meta) return;
  const Array one = Array::empty(Dims(), target.dtype());
  dispatch(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    *one.data<T>() = identity_of<T>(op);
  });
  target.copy_(one);
}

void run_summing(const ExchangePlan& plan, const Communicator& comm, const Array& to, const Array& from,
                 ReduceOp op) {
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::vector<Array> kept;
  std::vector<std::pair<const PeerPieces*, Array>> arrived;
  for (const PeerPieces& r : plan.recvs) {
    Array packed = Array::empty({r.elements}, to.dtype(), to.device());
    recvs.push_back({r.peer, packed.raw(), packed.nbytes()});
    arrived.emplace_back(&r, packed);
  }
  for (const PeerPieces& s : plan.sends) {
    kept.push_back(pack(views(from, s, false), s.elements, {}));
    sends.push_back({s.peer, kept.back().raw(), s.elements * size_of(from.dtype())});
  }
  if (plan.own.elements > 0)
    arrived.emplace_back(&plan.own, pack(views(from, plan.own, false), plan.own.elements, {}));
  std::sort(arrived.begin(), arrived.end(),
            [](const auto& a, const auto& b) { return a.first->peer < b.first->peer; });
  Work work = plan.local_only() ? Work() : comm.exchange(sends, recvs, to.device());
  work.wait();
  Array sum = is_half(to.dtype()) ? Array::empty(to.sizes(), DType::F32, to.device()) : to;
  fill_identity(sum, op);
  for (const auto& [peer, packed] : arrived) {
    std::int64_t at = 0;
    for (const ExchangePiece& p : peer->pieces) {
      const Array target = sum.box(p.to, p.extent);
      combine_into(target, packed.slice(0, at, target.numel()).reshape(target.sizes()), op);
      at += target.numel();
    }
  }
  if (is_half(to.dtype())) to.copy_(sum);
}

}  // namespace tessera
