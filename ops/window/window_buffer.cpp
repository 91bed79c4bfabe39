#include "ops/window/window_buffer.h"

#include "autograd/adjoints.h"
#include "ops/memory_order.h"

namespace tessera {

struct WindowBuffer::Exchange {
  Exchange(BoxMap given, const Dims& message_order)
      : map(std::move(given)), order(message_order), neighbours(map.plan) {
    const ExchangePlan& e = map.plan;
    own_in_place = e.own.pieces.size() == 1 && e.own.pieces[0].extent == e.from_sizes;
    neighbours.own.pieces.clear();
    neighbours.own.elements = 0;
  }
  BoxMap map;
  Dims order;
  // The same without this rank's own elements, where these lie in the buffer in one piece: what comes back is
  // added to a view of them.
  ExchangePlan neighbours;
  bool own_in_place = false;
};

WindowBuffer::WindowBuffer(BoxMap map, const Dims& order)
    : exchange_(std::make_shared<Exchange>(std::move(map), order)) {}

const BoxMap* WindowBuffer::map() const { return exchange_ ? &exchange_->map : nullptr; }

Dims WindowBuffer::buffer_sizes(const Dims& local) const {
  return exchange_ ? exchange_->map.plan.to_sizes : local;
}

Array fetch_in_order(const BoxMap& map, const Array& x, double outside, const Dims& order) {
  const Dims& sizes = map.plan.to_sizes;
  Array out = map.plan.covers ? empty_like(x, sizes) : full_like(x, sizes, outside);
  run_exchange(map.plan, map.comm, out, x, order);
  return out;
}

Array give_back_in_order(const BoxMap& map, const Array& gradient, const Dims& order) {
  Array own = full_like(gradient, map.plan.from_sizes, 0.0);
  run_adjoint(map.plan, map.comm, own, gradient, order);
  return own;
}

Array WindowBuffer::fetch(const Array& x) const {
  if (!exchange_) return x;
  const ExchangePlan& e = exchange_->map.plan;
  if (e.local_only() && e.covers && e.own.pieces.size() == 1)
    return x.box(e.own.pieces[0].from, e.own.pieces[0].extent);
  return fetch_in_order(exchange_->map, x, 0.0, exchange_->order);
}

Array WindowBuffer::give_back(const Array& buffer) const {
  if (!exchange_) return buffer;
  if (!exchange_->own_in_place) return give_back_in_order(exchange_->map, buffer, exchange_->order);
  const ExchangePiece& piece = exchange_->map.plan.own.pieces[0];
  Array own = buffer.box(piece.to, piece.extent);
  run_adjoint(exchange_->neighbours, exchange_->map.comm, own, buffer, exchange_->order);
  return own;
}

}  // namespace tessera
