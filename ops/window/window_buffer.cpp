#include "ops/window/window_buffer.h"

#include "autograd/adjoints.h"
#include "ops/memory_order.h"

namespace tessera {

WindowBuffer::WindowBuffer(BoxMap map) : map_(std::move(map)), neighbours_(map_.plan), exchanges_(true) {
  const ExchangePlan& e = map_.plan;
  own_in_place_ = e.own.pieces.size() == 1 && e.own.pieces[0].extent == e.from_sizes;
  neighbours_.own.pieces.clear();
  neighbours_.own.elements = 0;
}

Array fetch_in_order(const BoxMap& map, const Array& x, double outside) {
  const Dims& sizes = map.plan.to_sizes;
  const Array out = map.plan.covers ? empty_like(x, sizes) : full_like(x, sizes, outside);
  start_exchange(map.plan, map.comm, out, x).finish();
  return out;
}

Array give_back_in_order(const BoxMap& map, const Array& gradient) {
  const Array own = full_like(gradient, map.plan.from_sizes, 0.0);
  start_adjoint(map.plan, map.comm, own, gradient).finish();
  return own;
}

Array WindowBuffer::fetch(const Array& x) const {
  if (!exchanges_) return x;
  const ExchangePlan& e = map_.plan;
  if (e.local_only() && e.covers && e.own.pieces.size() == 1)
    return x.box(e.own.pieces[0].from, e.own.pieces[0].extent);
  return fetch_in_order(map_, x);
}

Array WindowBuffer::give_back(const Array& buffer) const {
  if (!exchanges_) return buffer;
  if (!own_in_place_) return give_back_in_order(map_, buffer);
  const ExchangePiece& piece = map_.plan.own.pieces[0];
  const Array own = buffer.box(piece.to, piece.extent);
  start_adjoint(neighbours_, map_.comm, own, buffer).finish();
  return own;
}

}  // namespace tessera
