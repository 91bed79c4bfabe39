// Exchange plans carried out: messages are packed, sent, received and unpacked.
#include <cstring>
#include <limits>
#include <optional>

#include "comm/reduce.h"
#include "mesh/exchange_plan.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

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
  copy_box(to, p.to, from, p.from, p.extent);
}

Array in_order(const Array& view, const Dims& order) { return order.empty() ? view : view.permute(order); }

// Where the pieces of a message belong, in the order of packing.
std::vector<Array> targets_of(const Array& buffer, const PeerPieces& peer, bool destination,
                              const Dims& order) {
  std::vector<Array> list = views(buffer, peer, destination);
  for (Array& target : list) target = in_order(target, order);
  return list;
}

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

// The messages of an exchange while they are made up, and the memory that must outlive them.
struct ExchangeInFlight::Messages {
  Device device;
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  std::vector<Array> kept;
  bool at_once = false;  // see SendBuffer; what is packed is in this core's cache, and copied on from there

  // What `peer` names of `buffer`: one dense run as it lies, else packed.
  void send(const PeerPieces& peer, bool destination, const Array& buffer, const Dims& order) {
    const std::int64_t bytes = peer.elements * size_of(buffer.dtype());
    const bool in_pieces = !destination && order.empty() && !peer.one_run_there;
    if (peer.pieces.size() == 1) {
      const ExchangePiece& piece = peer.pieces[0];
      if (const auto run = dense_run(buffer, destination ? piece.to : piece.from, piece.extent, order)) {
        sends.push_back({peer.peer, element(buffer, *run), bytes, in_pieces, at_once});
        return;
      }
    }
    kept.push_back(pack(views(buffer, peer, destination), peer.elements, order));
    sends.push_back({peer.peer, kept.back().raw(), bytes, in_pieces});
  }
};

struct ExchangeInFlight::Buffers {
  const Array& to;
  const Array& from;
  bool at_once;
};

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

void ExchangeInFlight::await(int peer, std::vector<Array> targets, std::int64_t elements,
                             Messages& messages) {
  auto p = std::make_shared<Pending>();
  p->peer = peer;
  p->targets = std::move(targets);
  p->packed = Array::empty({elements}, p->targets.front().dtype(), messages.device);
  const bool at_once = !add_ && messages.device == Device::Cpu;
  messages.recvs.push_back({peer, p->packed.raw(), p->packed.nbytes(), at_once ? p : nullptr});
  messages.kept.push_back(p->packed);
  pending_.push_back(std::move(p));
}

void ExchangeInFlight::launch(const ExchangePlan& plan, const Communicator& comm, Messages& messages) {
  if (plan.local_only()) return;
  work_ = comm.exchange(messages.sends, messages.recvs, messages.device);
  // An exception may drop the buffers before the work.
  for (Array& a : messages.kept) work_.keep(std::move(a));
  work_.done();  // answers a peer that was faster before this rank does anything else
}

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

void ExchangeInFlight::start(const ExchangePlan& plan, const Communicator& comm, const Buffers& buffers,
                             const Dims& order) {
  const auto& [to, from, at_once] = buffers;
  rank_ = plan.rank;
  Messages messages{to.device(), {}, {}, {to, from}, at_once};
  const std::int64_t item = size_of(to.dtype());
  for (const PeerPieces& r : plan.recvs) {
    if (r.pieces.size() == 1) {
      if (const auto run = dense_run(to, r.pieces[0].to, r.pieces[0].extent, order)) {
        messages.recvs.push_back({r.peer, element(to, *run), r.elements * item, nullptr});
        continue;
      }
    }
    await(r.peer, targets_of(to, r, true, order), r.elements, messages);
  }
  for (const PeerPieces& s : plan.sends) messages.send(s, false, from, order);
  launch(plan, comm, messages);
  for (const ExchangePiece& p : plan.own.pieces) copy_own(p, to, from);
}

void ExchangeInFlight::start_back(const ExchangePlan& plan, const Communicator& comm, const Buffers& buffers,
                                  const Dims& order) {
  const auto& [to, from, at_once] = buffers;
  rank_ = plan.rank;
  add_ = true;
  Messages messages{to.device(), {}, {}, {to, from}, at_once};
  for (const PeerPieces& s : plan.sends)  // what was sent comes back
    await(s.peer, targets_of(from, s, false, order), s.elements, messages);
  for (const PeerPieces& r : plan.recvs) messages.send(r, true, to, order);
  launch(plan, comm, messages);
  for (const ExchangePiece& p : plan.own.pieces)
    own_.emplace_back(from.box(p.from, p.extent), to.box(p.to, p.extent));
}

ExchangeInFlight start_exchange(const ExchangePlan& plan, const Communicator& comm, const Array& to,
                                const Array& from, const Dims& order) {
  ExchangeInFlight flight;
  flight.start(plan, comm, {to, from, false}, order);
  return flight;
}

ExchangeInFlight start_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                               const Array& to, const Dims& order) {
  ExchangeInFlight flight;
  flight.start_back(plan, comm, {to, from, false}, order);
  return flight;
}

void run_exchange(const ExchangePlan& plan, const Communicator& comm, const Array& to, const Array& from,
                  const Dims& order) {
  ExchangeInFlight flight;
  flight.start(plan, comm, {to, from, true}, order);
  flight.finish();
}

void run_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& from, const Array& to,
                 const Dims& order) {
  ExchangeInFlight flight;
  flight.start_back(plan, comm, {to, from, true}, order);
  flight.finish();
}

ExchangeInFlight start_arrivals(const ExchangePlan& plan, const Communicator& comm, const Array& arrivals,
                                const Array& from, const Dims& order) {
  ExchangeInFlight flight;
  ExchangeInFlight::Messages messages{from.device(), {}, {}, {arrivals, from}};
  std::int64_t at = 0;
  for (const PeerPieces& r : plan.recvs) {
    messages.recvs.push_back(
        {r.peer, element(arrivals, at), r.elements * size_of(arrivals.dtype()), nullptr});
    at += r.elements;
  }
  for (const PeerPieces& s : plan.sends) messages.send(s, false, from, order);
  flight.launch(plan, comm, messages);
  return flight;
}

ExchangeInFlight start_returns(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                               const Array& arrivals, const Dims& order) {
  ExchangeInFlight flight;
  flight.rank_ = plan.rank;
  flight.add_ = true;
  ExchangeInFlight::Messages messages{from.device(), {}, {}, {arrivals}};
  for (const PeerPieces& s : plan.sends)
    flight.await(s.peer, targets_of(from, s, false, order), s.elements, messages);
  std::int64_t at = 0;
  for (const PeerPieces& r : plan.recvs) {
    messages.sends.push_back({r.peer, element(arrivals, at), r.elements * size_of(arrivals.dtype())});
    at += r.elements;
  }
  flight.launch(plan, comm, messages);
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
