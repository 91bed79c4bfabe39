#include "ops/window/window_buffer.h"

#include "autograd/adjoints.h"
#include "ops/window/memory_order.h"

namespace tessera {

WindowBuffer::WindowBuffer(BoxMap map) : map_(std::move(map)), neighbours_(map_.plan), exchanges_(true) {
  const ExchangePlan& e = map_.plan;
  own_in_place_ = e.own.pieces.size() == 1 && e.own.pieces[0].extent == e.from_sizes;
  neighbours_.own.pieces.clear();
  neighbours_.own.elements = 0;
}

Array WindowBuffer::fetch(const Array& x) const {
  if (!exchanges_) return x;
  const ExchangePlan& e = map_.plan;
  if (e.local_only() && e.covers && e.own.pieces.size() == 1)
    return x.box(e.own.pieces[0].from, e.own.pieces[0].extent);
  const Array buffer = e.covers ? empty_like_order(x, e.to_sizes) : full_like_order(x, e.to_sizes, 0.0);
  start_exchange(e, map_.comm, buffer, x).finish();
  return buffer;
}

Array WindowBuffer::give_back(const Array& buffer) const {
  if (!exchanges_) return buffer;
  if (!own_in_place_) {
    const Array own = full_like_order(buffer, map_.plan.from_sizes, 0.0);
    start_adjoint(map_.plan, map_.comm, own, buffer).finish();
    return own;
  }
  const ExchangePiece& piece = map_.plan.own.pieces[0];
  const Array own = buffer.box(piece.to, piece.extent);
  start_adjoint(neighbours_, map_.comm, own, buffer).finish();
  return own;
}

}  // namespace tessera
