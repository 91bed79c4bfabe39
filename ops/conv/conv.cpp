#include "autograd/adjoints.h"
#include "ops/conv/conv_framed.h"
#include "ops/conv/conv_ops.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/layout_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// What a call does with its inputs: with specs, the strategy's plan; without, nothing unless padding is taken
// from the map.
class CallPlan {
 public:
  CallPlan(const LocalCall& l, const ConvKnown& known)
      : setup_(known.setup), geometry_(known.geometry), plan_(l.plan ? planned(l) : known.plan.get()) {}
  // `geometry`: without a plan.
  CallPlan(const LocalCall& l, const ConvLike& like, const cpu::ConvGeometry& geometry)
      : setup_(like.setup), geometry_(geometry), plan_(l.plan ? planned(l) : nullptr) {
    if (l.plan || !setup_.reads_beyond()) return;
    own_ = plain_conv_plan(like.x_sizes, like.y_sizes, setup_);
    plan_ = own_.get();
  }
  // Without a buffer: the plan for that, or null.
  const ConvPlan* framed() const { return plan_ && plan_->frame.used ? plan_ : nullptr; }
  // Whether the kernel works on the input as it lies.
  bool in_place() const { return !plan_ || (plan_->halo.map() == nullptr && plan_->wrap.map() == nullptr); }
  Array buffer(const Array& x) const { return plan_ ? halo_buffer(*plan_, x) : x; }
  // What a forward call leaves for the weight's gradient: the buffer, or of the halo what arrives.
  Array arrived(const Array& x) const {
    return framed() ? framed_arrivals({*framed(), setup_}, x) : buffer(x);
  }
  Array adjoint(const Array& buffer) const { return plan_ ? halo_adjoint(*plan_, buffer) : buffer; }
  Dims sizes(const Dims& local) const { return plan_ ? buffer_sizes(*plan_, local) : local; }
  const cpu::ConvGeometry& geometry() const { return plan_ ? plan_->geometry : geometry_; }

 private:
  static const ConvPlan* planned(const LocalCall& l) {
    return static_cast<const ConvPlan*>(l.plan->extra.get());
  }
  const ConvSetup& setup_;
  const cpu::ConvGeometry& geometry_;
  const ConvPlan* plan_;
  std::shared_ptr<const ConvPlan> own_;
};

// The specs of the forward call, for inputs whose specs may since have become plain or different ones.
ConvLike on_mesh(const ConvLike& like, const DeviceMesh& mesh) {
  ConvLike out = like;
  if (!out.x) out.x = ShardSpec::replicated(mesh, like.x_sizes);
  if (!out.w) out.w = ShardSpec::replicated(mesh, like.w_sizes);
  return out;
}

// dy as the forward call's output, but whole where that is a sum; axes on which everything is replicated may
// keep dy's owed sum (`owed`) beside an `other` factor that owes none.
SpecPtr gradient_spec(const ShardSpec& y, const ShardSpec& dy, const ShardSpec& other, unsigned& owed) {
  Placements p = y.placements();
  owed = 0;
  const bool may_owe = !other.has_partial();
  for (std::size_t a = 0; a < p.size(); ++a) {
    if (p[a].is_partial()) p[a] = Replicate();
    const bool sum = may_owe && dy.placements()[a].is_partial() && dy.placements()[a].op == ReduceOp::Sum;
    if (p[a].is_replicate() && y.placements()[a].is_replicate() && sum) {
      p[a] = Partial();
      owed |= 1U << a;
    }
  }
  return with_placements(y, p);
}

}  // namespace

Strategy backward_data_strategy(const SpecPtr& dy, const ConvLike& like) {
  const Strategy f = on_mesh(like, dy->mesh()).forward();
  unsigned owed = 0;
  Strategy s;
  s.inputs = {gradient_spec(*f.outputs[0], *dy, *f.inputs[1], owed), f.inputs[1]};
  Placements p = f.inputs[0]->placements();
  const bool sums_channels = !like.setup.depthwise(like.w_sizes);
  for (std::size_t a = 0; a < p.size(); ++a) {
    if (p[a].is_partial()) p[a] = Replicate();  // the gradient of every term of a sum is the whole
    const Placement& y = f.outputs[0]->placements()[a];
    const bool w_owed = f.inputs[1]->placements()[a].is_partial();
    if ((y.is_shard() && y.dim == 1 && sums_channels) || w_owed || (owed >> a & 1U) != 0) p[a] = Partial();
  }
  s.outputs = {with_placements(*f.inputs[0], p)};
  s.extra = f.extra;
  s.held = {like.x, like.w};
  return s;
}

void backward_data_local(LocalCall& l, const ConvLike& like, const cpu::ConvGeometry& geometry) {
  const CallPlan plan(l, like, geometry);
  const Array bias = l.in.size() > 2 ? l.in[2] : Array();
  const Factors in(l);
  if (plan.framed()) {
    l.out[0] = framed_backward_data({*plan.framed(), like.setup}, {in[0], in[1], bias},
                                    l.out_sizes(0, like.x_sizes));
    return;
  }
  const Dims sizes = plan.sizes(l.out_sizes(0, like.x_sizes));
  const Array buffer =
      Array::empty_strided(sizes, cpu::channels_last_strides(sizes), l.in[0].dtype(), l.in[0].device());
  const bool at_once = plan.in_place();  // else neighbours, or padding from the map, add their parts first
  kernels::conv_backward_data(buffer.device(),
                              {buffer, in[0], in[1], plan.geometry(), at_once ? bias : Array()});
  l.out[0] = plan.adjoint(buffer);
  if (!at_once && bias.defined()) add_bias(l.out[0], bias);
}

Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const ConvLike& like) {
  static const OpDef op{"conv_backward_data"};
  const std::array<Tensor, 2> inputs = factors_to_call(dy, w);
  auto local = [&](LocalCall& l) { backward_data_local(l, like, plain_geometry(like.setup)); };
  auto plan = [&](const std::vector<SpecPtr>& in) { return backward_data_strategy(in[0], like); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [like, dys = SavedTensor(in[0]), ws = SavedTensor(in[1])](const BackwardContext& c,
                                                                     const Tensors& g) {
      Tensors grads(2);
      if (c.needs(0)) grads[0] = conv_call(g[0], ws.unpack("conv"), Tensor(), like.setup);
      if (c.needs(1)) grads[1] = conv_backward_weight(dys.unpack("conv"), g[0], like, Array());
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&like.x_sizes, 1};
  c.parameters = plan_key(inputs, like);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor conv_backward_weight(const Tensor& dy, const Tensor& x, const ConvLike& like, const Array& buffer) {
  static const OpDef op{"conv_backward_weight"};
  const std::array<Tensor, 2> inputs = factors_to_call(dy, x);
  auto local = [&](LocalCall& l) {
    const cpu::ConvGeometry geometry = plain_geometry(like.setup);
    const CallPlan plan(l, like, geometry);
    l.out[0] = Array::empty(l.out_sizes(0, like.w_sizes), l.in[0].dtype(), l.in[0].device());
    Array read = buffer;
    if (!read.defined() && (!plan.framed() || Factors::owed(l))) read = plan.arrived(l.in[1]);
    const Factors in(l, &read);
    if (plan.framed()) {
      framed_backward_weight({*plan.framed(), like.setup}, {l.out[0], in[0], in[1], read});
    } else {
      kernels::conv_backward_weight(read.device(), {l.out[0], in[0], read, plan.geometry()});
    }
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const Strategy f = on_mesh(like, in[0]->mesh()).forward();
    unsigned owed = 0;
    Strategy s;
    s.inputs = {gradient_spec(*f.outputs[0], *in[0], *f.inputs[0], owed), f.inputs[0]};
    Placements p = f.inputs[1]->placements();
    for (std::size_t a = 0; a < p.size(); ++a) {
      if (p[a].is_partial()) p[a] = Replicate();
      const Placement& y = f.outputs[0]->placements()[a];
      const bool x_owed = f.inputs[0]->placements()[a].is_partial();
      if ((y.is_shard() && y.dim != 1) || x_owed || (owed >> a & 1U) != 0) p[a] = Partial();
    }
    s.outputs = {with_placements(*f.inputs[1], p)};
    s.extra = f.extra;
    s.held = {like.x, like.w};
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [like, dys = SavedTensor(in[0]), xs = SavedTensor(in[1])](const BackwardContext& c,
                                                                     const Tensors& g) {
      Tensors grads(2);
      if (c.needs(0)) grads[0] = conv_call(xs.unpack("conv"), g[0], Tensor(), like.setup);
      if (c.needs(1)) grads[1] = conv_backward_data(dys.unpack("conv"), g[0], like);
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&like.w_sizes, 1};
  c.parameters = plan_key(inputs, like);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

namespace {

struct ConvTensors {
  const Tensor& x;
  const Tensor& w;
  const Tensor& bias;
};

// The call as it would have been on specs from which its outputs lie as `dy` does, along axes on which the
// input and the weight are whole: they are taken apart without a message, where dy would have to be made
// whole.
ConvLike followed(const ConvLike& like, const Tensor& dy) {
  if (!dy.is_sharded() || !dy.spec()->is_cut()) return like;
  ConvLike used = on_mesh(like, dy.spec()->mesh());
  bool follows = false;
  for (int d = 0; d < dy.dim(); ++d) {
    const CutPtr& cut = dy.spec()->cut(d);
    if (!cut) continue;
    const auto whole = [&](const SpecPtr& t) {
      return std::all_of(cut->axes.begin(), cut->axes.end(),
                         [&](int a) { return t->placement(a).is_replicate(); });
    };
    const bool of_filters = d == 1 && like.setup.groups == 1;
    SpecPtr& t = of_filters ? used.w : used.x;
    // Channels in groups stay together: the cut goes to the samples.
    const int at = of_filters || (d == 1 && !like.setup.depthwise(like.w_sizes)) ? 0 : d;
    if (!whole(used.x) || !whole(used.w) || t->cut(at)) continue;
    const std::int64_t n = t->sizes()[at];
    t = with_cut(*t, at, n, d < 2 && n == dy.sizes()[d] ? *cut : even_cut(*cut, n));
    follows = true;
  }
  return follows ? used : like;
}

// Of a forward call: `buffer` is what it made, `out` its results and, if it is kept, what the activation was
// given.
GradFunction conv_gradient(const ConvLike& like, std::span<const Tensor> in, std::span<const Tensor> out,
                           const ConvResult& result, const Array& buffer) {
  SavedTensor at;  // where the activation has its slope
  if (result.activation != Activation::None) at = SavedTensor::output(out.back());
  return [like, buffer = buffer, at, activation = result.activation, xs = SavedTensor(in[0]),
          ws = SavedTensor(in[1]),
          has_bias = in[2].defined()](const BackwardContext& c, const Tensors& g) mutable {
    Tensor dz = g[0];
    if (dz.defined() && activation != Activation::None) {
      TS_CHECK(at.defined(), "conv", "backward once more after a pass that was to be the last one");
      dz = activation_gradient(dz, at.unpack("conv"), activation);
    }
    if (c.last()) at = SavedTensor();  // as large as the gradient of the input that is still to be made
    if (g.size() > 1 && g[1].defined()) dz = dz.defined() ? add(dz, g[1]) : g[1];
    const ConvLike used = followed(like, dz);
    if (used.x != like.x || used.w != like.w) buffer = Array();
    Tensors grads(3);
    const Tensor w = c.needs(0) ? ws.unpack("conv") : Tensor();  // may refuse: while x is still there
    // The weight first: x may be given up before there is a gradient of its size, and edges read the same
    // lines of dz one after the other.
    if (c.needs(1)) {
      TS_CHECK(xs.defined(), "conv", "backward once more after a pass that was to be the last one");
      grads[1] = conv_backward_weight(dz, xs.unpack("conv"), used, buffer);
    }
    if (c.last()) {
      xs = SavedTensor();
      buffer = Array();
    }
    if (c.needs(0)) grads[0] = conv_backward_data(dz, w, used);
    if (has_bias && c.needs(2)) grads[2] = sum(dz, all_but_channels(dz.dim()));
    return grads;
  };
}

Tensors conv_forward(const ConvTensors& t, const ConvKnown& known, const ConvResult& result, Array& buffer) {
  static const OpDef op{"conv"};
  auto [map, weight] = factors_to_call(t.x, t.w);
  const std::array<Tensor, 3> inputs{std::move(map), std::move(weight), t.bias};
  const ConvSetup& setup = known.setup;
  const Dims& sizes = known.y_sizes;
  const std::array<Dims, 2> outputs{sizes, result.keeps ? sizes : Dims()};
  auto local = [&](LocalCall& l) {
    const CallPlan plan(l, known);
    const Dims& out = l.out_sizes(0, sizes);
    for (Array& y : l.out)
      y = Array::empty_strided(out, cpu::channels_last_strides(out), l.in[0].dtype(), l.in[0].device());
    const Array z = result.keeps ? l.out[1] : Array();
    const Factors in(l);
    if (plan.framed()) {
      buffer =
          framed_forward({*plan.framed(), setup}, {l.out[0], in[0], in[1], l.in[2], result.activation, z});
    } else {
      buffer = plan.buffer(in[0]);
      kernels::conv_forward(buffer.device(),
                            {l.out[0], buffer, in[1], l.in[2], plan.geometry(), result.activation, z});
    }
    if (l.plan && l.in_spec(1)->has_partial()) buffer = Array();  // x as a factor may have been cleared
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return conv_strategy(in, sizes, setup, result); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) {
    const ConvLike like{setup, in[0].sizes(), in[1].sizes(), sizes, in[0].spec(), in[1].spec()};
    return conv_gradient(like, in, out, result, buffer);
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {outputs.data(), result.keeps ? 2U : 1U};
  c.parameters = known.key;
  if (c.parameters != 0)
    c.parameters = Hash()
                       .add(static_cast<std::int64_t>(c.parameters))
                       .add(static_cast<std::int64_t>(result.activation))
                       .add(std::int64_t{result.keeps});
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

}  // namespace

Tensor conv_call(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSetup& setup, Array* made) {
  Array buffer;
  const bool sharded = x.is_sharded() || w.is_sharded() || (bias.defined() && bias.is_sharded());
  const ConvKnown known = known_conv(setup, x.sizes(), w.sizes(), sharded);
  Tensor y = std::move(conv_forward({x, w, bias}, known, {}, buffer).front());
  if (made != nullptr) *made = buffer;
  return y;
}

Tensor conv_activated(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvKnown& known,
                      Activation activation) {
  const bool recorded = grad_enabled() && (x.requires_grad() || w.requires_grad() || bias.requires_grad());
  const bool keeps = activation != Activation::None && activation != Activation::Relu && recorded;
  Array buffer;
  return std::move(conv_forward({x, w, bias}, known, {activation, keeps}, buffer).front());
}

}  // namespace tessera
