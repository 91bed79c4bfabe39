#include "ops/conv/conv_framed.h"

#include "ops/kernels.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

Array channels_last(const Dims& sizes, const Array& like) {
  return Array::empty_strided(sizes, cpu::channels_last_strides(sizes), like.dtype(), like.device());
}

Dims picked(const Dims& values, const Dims& order) {
  Dims out;
  for (const std::int64_t d : order) out.push_back(values[static_cast<int>(d)]);
  return out;
}

// What arrives of the halo: one flat array, in pieces.
class Arrivals {
 public:
  Arrivals(const FramedPlan& framed, const Array& like)
      : plan_(framed.plan), order_(message_order(like.dim())) {
    const BoxMap* map = plan_.halo.map();
    flat = Array::empty({map != nullptr ? map->plan.received_elements() : 0}, like.dtype(), like.device());
  }
  Arrivals(const FramedPlan& framed, int dims, const Array& arrived)
      : flat(arrived), plan_(framed.plan), order_(message_order(dims)) {}

  ExchangeInFlight fetch(const Array& x) const {
    const BoxMap* map = plan_.halo.map();
    return map != nullptr ? start_arrivals(map->plan, map->comm, flat, x, order_) : ExchangeInFlight();
  }
  ExchangeInFlight give_back(const Array& dx) const {
    const BoxMap* map = plan_.halo.map();
    return map != nullptr ? start_returns(map->plan, map->comm, dx, flat, order_) : ExchangeInFlight();
  }
  Array piece(int i) const {
    const FramePiece& p = plan_.frame.pieces[static_cast<std::size_t>(i)];
    return box_of_message(flat, p.at, p.extent);
  }

  Array flat;

 private:
  const ConvPlan& plan_;
  Dims order_;
};

// An edge as kernels see it: its own dim is the first spatial one, so that lines are long.
class EdgeCall {
 public:
  EdgeCall(const FramedPlan& framed, const FrameEdge& edge) : framed_(framed), edge_(edge) {
    const int own = edge.dim + 2;
    order_ = {0, 1, own};
    for (int d = 2; d < edge.sizes.size(); ++d)
      if (d != own) order_.push_back(d);
    back_ = Dims::filled(order_.size(), 0);
    for (int d = 0; d < order_.size(); ++d) back_[static_cast<int>(order_[d])] = d;
  }

  cpu::ConvGeometry geometry() const {
    cpu::ConvGeometry g = framed_.plan.geometry;
    for (int d = 0; d < edge_.pad_lo.size(); ++d)
      if (framed_.plan.in_buffer[static_cast<std::size_t>(d)]) {
        g.padding_lo[d] = edge_.pad_lo[d];
        g.padding_hi[d] = edge_.pad_hi[d];
      }
    Dims spatial;
    for (int d = 2; d < order_.size(); ++d) spatial.push_back(order_[d] - 2);
    for (Dims* values : {&g.stride, &g.padding_lo, &g.padding_hi, &g.dilation})
      *values = picked(*values, spatial);
    return g;
  }
  Array turned(const Array& a) const { return a.permute(order_); }
  // Of the kernel, turned.
  Array taps(const Array& w) const { return turned(w).slice(2, edge_.taps.lo, edge_.taps.length()); }
  Array turned_back(const Array& a) const { return a.permute(back_); }

  Array buffer(const Array& like) const { return channels_last(picked(edge_.sizes, order_), like); }
  // Of both sides.
  Array outputs(const Array& like) const {
    Dims sizes = edge_.outputs;
    sizes[0] *= static_cast<std::int64_t>(edge_.at.size());
    return channels_last(picked(sizes, order_), like);
  }
  // The sides of `all` and their places in y.
  template <class F>
  void each_side(const Array& all, const Array& y, const F& f) const {
    const Array sides = turned_back(all);
    const std::int64_t samples = edge_.outputs[0];
    for (std::size_t i = 0; i < edge_.at.size(); ++i)
      f(sides.slice(0, static_cast<std::int64_t>(i) * samples, samples), y.box(edge_.at[i], edge_.outputs));
  }
  // Whether its buffer is a box of one piece of what arrives; and nobody else's.
  bool one_piece() const { return edge_.one_piece; }
  bool alone() const { return edge_.alone; }
  Array piece_of(const Arrivals& arrived) const {
    const FrameCopy& c = edge_.copies.front();
    return turned(arrived.piece(c.piece).box(c.from, c.extent));
  }
  // What its windows read; of elements that the inside has seen nothing, unless `all`.
  Array input(const Array& x, const Arrivals& arrived, bool all) const {
    if (one_piece()) return piece_of(arrived);
    Array values = buffer(x);
    const Array target = turned_back(values);
    values.zero_();
    for (const FrameCopy& c : edge_.copies)
      if (all || counts(c))
        copy_strided(target.box(c.to, c.extent),
                     (c.piece < 0 ? x : arrived.piece(c.piece)).box(c.from, c.extent));
    return values;
  }
  Array gradient_of_outputs(const Array& dy) const {
    const bool one_slab = edge_.dim == 0 && edge_.at.size() == 1 && edge_.outputs[0] == 1;
    if (one_slab) return turned(dy.box(edge_.at.front(), edge_.outputs));
    Array all = outputs(dy);
    each_side(all, dy, [](const Array& side, const Array& place) { copy_strided(side, place); });
    return all;
  }
  // Adds the gradient of the buffer to those of own elements, or of what arrived.
  void add_to(const Array& dx, const Array& gradient) const {
    add_copies(gradient, false, [&](const FrameCopy&) { return dx; });
  }
  void add_to(const Arrivals& arrived, const Array& gradient) const {
    add_copies(gradient, true, [&](const FrameCopy& c) { return arrived.piece(c.piece); });
  }

 private:
  bool counts(const FrameCopy& c) const { return edge_.apart || !c.seen; }
  template <class F>
  void add_copies(const Array& gradient, bool arrived, const F& owner) const {
    const Array source = turned_back(gradient);
    for (const FrameCopy& c : edge_.copies)
      if (counts(c) && (c.piece >= 0) == arrived)
        add_into(owner(c).box(c.from, c.extent), source.box(c.to, c.extent));
  }

  const FramedPlan& framed_;
  const FrameEdge& edge_;
  Dims order_, back_;
};

std::vector<EdgeCall> edges_of(const FramedPlan& framed) {
  std::vector<EdgeCall> edges;
  edges.reserve(framed.frame().edges.size());
  for (const FrameEdge& e : framed.frame().edges) edges.emplace_back(framed, e);
  return edges;
}

cpu::ConvGeometry inside_geometry(const FramedPlan& framed) {
  cpu::ConvGeometry g = framed.plan.geometry;
  for (int d = 0; d < framed.setup.spatial(); ++d)
    if (framed.plan.in_buffer[static_cast<std::size_t>(d)]) {
      g.padding_lo[d] = framed.frame().pad_lo[d];
      g.padding_hi[d] = framed.frame().pad_hi[d];
    }
  return g;
}
Array inside_input(const FramedPlan& framed, const Array& x) {
  return x.box(framed.frame().from, framed.frame().extent);
}
Array inside_output(const FramedPlan& framed, const Array& y) {
  return y.box(framed.frame().out_from, framed.frame().out_extent);
}

// Edges are added on the CPU (a device has each call's price) and to sums that are not rounded on the way.
FramedPlan adding(const FramedPlan& given, const Array& like, bool linear) {
  const bool added =
      given.plan.added.used && linear && like.device() == Device::Cpu && !is_half(like.dtype());
  return {given.plan, given.setup, added ? &given.plan.added : &given.plan.frame};
}

}  // namespace

Array framed_forward(const FramedPlan& given, const FramedForward& call) {
  const Device device = call.x.device();
  const FramedPlan framed = adding(given, call.x, call.activation == Activation::None);
  const bool added = framed.frame().added;
  const Arrivals arrived(framed, call.x);
  ExchangeInFlight halo = arrived.fetch(call.x);
  const auto inside_of = [&](const Array& y) { return y.defined() ? inside_output(framed, y) : y; };
  kernels::conv_forward(device, {inside_of(call.y), inside_input(framed, call.x), call.w, call.bias,
                                 inside_geometry(framed), call.activation, inside_of(call.z)});
  halo.finish();
  const auto put = [added](const Array& side, const Array& place) {
    added ? add_into(place, side) : copy_strided(place, side);
  };
  for (const EdgeCall& edge : edges_of(framed)) {
    const Array y = edge.outputs(call.y);
    const Array z = call.z.defined() ? edge.outputs(call.z) : call.z;
    kernels::conv_forward(device, {y, edge.input(call.x, arrived, true), edge.taps(call.w),
                                   added ? Array() : call.bias, edge.geometry(), call.activation, z});
    edge.each_side(y, call.y, put);
    if (z.defined()) edge.each_side(z, call.z, put);
  }
  return arrived.flat;
}

void add_bias(const Array& y, const Array& bias) {
  Dims strides = Dims::filled(y.dim(), 0);
  strides[1] = bias.stride(0);
  add_into(y, bias.as_strided(y.sizes(), strides, bias.offset()));
}

Array framed_arrivals(const FramedPlan& framed, const Array& x) {
  const Arrivals arrived(framed, x);
  arrived.fetch(x).finish();
  return arrived.flat;
}

// Edges first, so that the halo's gradient is on its way while the inside's is computed.
Array framed_backward_data(const FramedPlan& given, const FramedBackwardData& call, const Dims& x_sizes) {
  const auto& [dy, w, bias] = call;
  const Device device = dy.device();
  const FramedPlan framed = adding(given, dy, true);
  Array dx = channels_last(x_sizes, dy);
  const Arrivals arrived(framed, dx);
  arrived.flat.zero_();
  const std::vector<EdgeCall> edges = edges_of(framed);
  std::vector<Array> gradients;
  gradients.reserve(edges.size());
  for (const EdgeCall& edge : edges) {
    const Array gradient = edge.alone() ? edge.piece_of(arrived) : edge.buffer(dy);
    kernels::conv_backward_data(device,
                                {gradient, edge.gradient_of_outputs(dy), edge.taps(w), edge.geometry()});
    if (!edge.alone()) edge.add_to(arrived, gradient);
    gradients.push_back(edge.alone() ? Array() : gradient);
  }
  ExchangeInFlight halo = arrived.give_back(dx);
  const Array inside = inside_input(framed, dx);
  const bool whole = inside.numel() == dx.numel();
  if (!whole) dx.zero_();
  kernels::conv_backward_data(
      device, {inside, inside_output(framed, dy), w, inside_geometry(framed), whole ? bias : Array()});
  if (!whole && bias.defined()) add_bias(dx, bias);
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (gradients[i].defined()) edges[i].add_to(dx, gradients[i]);
  halo.finish();
  return dx;
}

void framed_backward_weight(const FramedPlan& given, const FramedBackwardWeight& call) {
  const Device device = call.dy.device();
  const FramedPlan framed = adding(given, call.dy, true);
  const bool at_hand = call.arrived.defined();
  const Arrivals arrived = at_hand ? Arrivals(framed, call.x.dim(), call.arrived) : Arrivals(framed, call.x);
  ExchangeInFlight halo = at_hand ? ExchangeInFlight() : arrived.fetch(call.x);
  kernels::conv_backward_weight(device, {call.dw, inside_output(framed, call.dy),
                                         inside_input(framed, call.x), inside_geometry(framed)});
  halo.finish();
  for (const EdgeCall& edge : edges_of(framed)) {
    const Array target = edge.taps(call.dw);
    const Array dw = Array::empty(target.sizes(), call.dw.dtype(), device);
    kernels::conv_backward_weight(
        device, {dw, edge.gradient_of_outputs(call.dy), edge.input(call.x, arrived, false), edge.geometry()});
    add_into(target, dw);
  }
}

}  // namespace tessera
