#include "ops/conv/conv_transpose.h"

#include "ops/conv/conv_ops.h"
#include "ops/cpu/conv_choice.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/layout_ops.h"
#include "ops/window/window_args.h"

namespace tessera {
namespace {

constexpr char kSpatial[] = {'H', 'W', 'D'};

// The cut of the output whose convolution gives `input`'s cut back (see window_output_cut): an interval
// begins where the middle of its first window lies. `n`: positions of the output.
DimCut transposed_cut(const DimCut& input, const Window& w, std::int64_t inputs, std::int64_t n) {
  const std::int64_t middle = w.dilation * (w.kernel - 1) / 2 - w.pad_lo;
  const auto edge = [&](std::int64_t i) {
    if (i == 0 || i == inputs) return i == 0 ? std::int64_t{0} : n;
    return std::clamp<std::int64_t>(i * w.stride + middle, 0, n);
  };
  DimCut cut{input.axes, {}};
  for (const Intervals& part : input.parts) {
    const Interval own = part.empty() ? Interval() : part.front();
    cut.parts.push_back(own.empty() ? Intervals() : Intervals{{edge(own.lo), edge(own.hi)}});
  }
  if (inputs == 0)
    cut.parts.front() = {{0, n}};  // nobody has elements of the input, somebody must have the output's
  return cut;
}

Rule transposed_rule(const ConvSetup& s, const Dims& w_sizes) {
  Rule r;
  r.linearity = Linearity::Each;
  const bool grouped = s.groups > 1;  // the weight's channels are not the input's then
  const bool depthwise = s.depthwise(w_sizes);
  const RuleDim c{grouped && !depthwise ? '\0' : 'c', false, false};
  const RuleDim o{grouped ? '\0' : 'o', false, false};
  RuleTerm x{{'n', false, false}, c};
  RuleTerm w{c, o};
  RuleTerm y{{'n', false, false}, depthwise ? c : o};
  for (int d = 0; d < s.spatial(); ++d) {
    x.push_back({kSpatial[d], true, false});
    w.push_back({});
    y.push_back({kSpatial[d], false, false});
  }
  r.inputs = {x, w, {y[1]}};  // a bias last
  r.outputs = {y};
  return r;
}

// The convolution that this call is the transpose of: `like.x` is our output, `like.y_sizes` our input. Its
// specs are those from which its own strategy arrives at what our inputs are.
Strategy transposed_strategy(const std::vector<SpecPtr>& in, ConvLike like) {
  Rule rule = transposed_rule(like.setup, like.w_sizes);
  rule.inputs.resize(in.size());
  Dims as_input = like.x_sizes;  // the output, as long as its spatial dims are cut like the input's
  for (int d = 2; d < as_input.size(); ++d) as_input[d] = like.y_sizes[d];
  RuleProblem problem{&rule, in, {as_input}, {}};
  for (int d = 0; d < like.setup.spatial(); ++d) problem.windows[kSpatial[d]] = Window();
  const Strategy s = resolve(problem);
  const SpecPtr y = without_partial(*s.outputs[0]);
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(y->dim()));
  for (int d = 0; d < y->dim(); ++d) {
    if (!y->cut(d)) continue;
    cuts[static_cast<std::size_t>(d)] =
        d < 2 ? *y->cut(d)
              : transposed_cut(*y->cut(d), like.setup.windows[d - 2], like.y_sizes[d], like.x_sizes[d]);
  }
  like.x = ShardSpec::make(y->mesh(), y->placements(), like.x_sizes, std::move(cuts));
  like.w = s.inputs[1];
  Strategy whole = backward_data_strategy(s.inputs[0], like);
  whole.inputs.insert(whole.inputs.end(), s.inputs.begin() + 2, s.inputs.end());
  return whole;
}

bool is_whole(const Tensor& t) { return !t.is_sharded() || t.spec()->is_replicated(); }
// Whether a bias may be added on the spot: no sum is owed, and every rank has all channels of what it makes
// or the bias says which (the weight is then cut like it, and in backward no more of the gradient is needed).
bool takes_bias(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSetup& setup) {
  const bool channels = !x.is_sharded() || (!x.spec()->cut(1) && !x.spec()->has_partial());
  const bool one_group = setup.groups == 1 || setup.depthwise(w.sizes());
  const bool fits = is_whole(bias) || (one_group && !bias.spec()->has_partial());
  return channels && is_whole(w) && fits;
}

// The convolution for a gradient of our outputs that comes cut where they are whole: it stays as it is, the
// input and the weight are taken apart.
ConvLike followed(ConvLike like, const Tensor& dy) {
  if (!like.x || !like.x->is_replicated() || !dy.is_sharded() || dy.spec()->has_partial()) return like;
  like.x = dy.spec();
  for (int d = 2; d < like.x->dim(); ++d)
    if (like.x->cut(d))
      like.x = with_cut(*like.x, d, like.x->sizes()[d], even_cut(*like.x->cut(d), like.x->sizes()[d]));
  return like;
}

// A call: what it is the gradient of, and that one's geometry where all is plain.
struct Transposed {
  ConvLike like;
  cpu::ConvGeometry geometry;
};

// `bias` where takes_bias.
Tensor transposed_call(const Tensor& x, const Tensor& w, const Tensor& bias, const Transposed& known) {
  static const OpDef op{"conv_transpose"};
  const ConvLike& like = known.like;
  auto [map, weight] = factors_to_call(x, w);
  const std::array<Tensor, 3> all{std::move(map), std::move(weight), bias};
  const std::span<const Tensor> inputs(all.data(), bias.defined() ? 3 : 2);
  auto local = [&](LocalCall& l) { backward_data_local(l, like, known.geometry); };
  auto plan = [&](const std::vector<SpecPtr>& in) { return transposed_strategy(in, like); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    ConvLike given = like;
    if (out[0].is_sharded()) {
      given.x = without_partial(*out[0].spec());
      given.w = in[1].spec();
    }
    return [given, xs = SavedTensor(in[0]), ws = SavedTensor(in[1]), inputs = in.size()](
               const BackwardContext& c, const Tensors& g) {
      const ConvLike used = followed(given, g[0]);
      Tensors grads(inputs);
      const Tensor filters = ws.unpack("conv_transpose");
      Array halo;  // both gradients read the windows of the incoming one
      if (c.needs(0)) grads[0] = conv_call(g[0], filters, Tensor(), used.setup, &halo);
      if (g[0].spec() != used.x || filters.spec() != used.w) halo = Array();
      if (c.needs(1)) grads[1] = conv_backward_weight(xs.unpack("conv_transpose"), g[0], used, halo);
      if (inputs > 2 && c.needs(2)) grads[2] = sum(g[0], all_but_channels(g[0].dim()));
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

struct Called {
  const char* op;
  int spatial;
};

void check_bias(const char* op, const Tensor& w, const Tensor& bias, std::int64_t groups) {
  if (!bias.defined()) return;
  TS_CHECK(bias.dim() == 1 && bias.sizes()[0] == w.sizes()[1] * groups && bias.dtype() == w.dtype(), op,
           "the bias must have {} elements of the weight's dtype, given {} {}", w.size(1) * groups,
           bias.sizes().str(), name_of(bias.dtype()));
}

void check_inputs(const Called& f, const Tensor& x, const Tensor& w, const Tensor& bias,
                  std::int64_t groups) {
  const auto [op, n] = f;
  TS_CHECK(x.defined() && w.defined(), op, "an input is undefined");
  TS_CHECK(
      w.dim() == n + 2 && (x.dim() == n + 2 || x.dim() == n + 1), op,
      "needs a weight [in, out / groups, {} kernel dims] and an input [N, C, {} spatial dims] or [C, …], "
      "given {} and {}",
      n, n, w.sizes().str(), x.sizes().str());
  TS_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype(), op,
           "input and weight must have one floating dtype, given {} and {}", name_of(x.dtype()),
           name_of(w.dtype()));
  const std::int64_t channels = x.size(-n - 1);
  TS_CHECK(groups >= 1 && channels == w.size(0) && channels >= 1 && channels % groups == 0, op,
           "the weight {} with {} groups takes {} input channels, the input {} has {}", w.sizes().str(),
           groups, w.size(0), x.sizes().str(), channels);
  const bool no_samples = x.dim() == n + 2 && x.size(0) == 0;
  for (int d = 1; d <= n; ++d)
    TS_CHECK(x.size(-d) > 0 || no_samples, op,
             "only the spatial dims of an empty batch may be empty, given {}", x.sizes().str());
  check_bias(op, w, bias, groups);
}

ConvLike setup_of(const char* op, const Dims& x, const Dims& w, const ConvTransposeOptions& o) {
  const int n = w.size() - 2;
  const Dims stride = per_dim(op, "stride", o.stride, n, 1);
  const Dims padding = per_dim(op, "padding", o.padding, n, 0);
  const Dims extra = per_dim(op, "output_padding", o.output_padding, n, 0);
  const Dims dilation = per_dim(op, "dilation", o.dilation, n, 1);
  ConvLike like;
  like.setup.groups = o.groups;
  like.x_sizes = {x[0], w[1] * o.groups};
  like.w_sizes = w;
  like.y_sizes = x;
  for (int d = 0; d < n; ++d) {
    TS_CHECK(extra[d] < std::max(stride[d], dilation[d]), op,
             "output_padding {} must be smaller than stride {} or dilation {}", extra.str(), stride.str(),
             dilation.str());
    // What output_padding adds at the end is so much less padding there.
    const Window window{w[d + 2], stride[d], padding[d], padding[d] - extra[d], dilation[d]};
    // Less than nothing where the batch is empty, which has room for all the padding there is.
    const std::int64_t spread = checked_product(op, x[d + 2] - 1, stride[d]);
    const std::int64_t padded = checked_padded(op, 0, window);
    const std::int64_t size = checked_sum(op, checked_sum(op, spread, -padded), checked_reach(op, window));
    TS_CHECK(size >= 1, op, "spatial dim {} of size {} would have {} positions in the output", d, x[d + 2],
             size);
    like.setup.windows.push_back(window);
    like.x_sizes.push_back(size);
  }
  return like;
}

Tensor biased_call(const Tensor& x, const Tensor& w, const Tensor& bias, const Transposed& known) {
  if (!bias.defined() || takes_bias(x, w, bias, known.like.setup)) return transposed_call(x, w, bias, known);
  const Tensor y = transposed_call(x, w, Tensor(), known);
  Dims column{bias.size(0)};
  for (int d = 0; d < known.like.setup.spatial(); ++d) column.push_back(1);
  return add(y, reshape(bias, column));
}

thread_local KeptCalls<ConvTransposeOptions, Transposed> kept;

Tensor conv_transpose(const Called& f, const Tensor& x, const Tensor& w, const Tensor& bias,
                      const ConvTransposeOptions& o) {
  cpu::read_conv_environment();
  if (const auto known = kept.find({x, w, bias, o}); known && w.dim() == f.spatial + 2) {
    check_bias(f.op, w, bias, o.groups);
    check_together(f.op, {&x, &w, &bias});
    return biased_call(x, w, bias, *known);
  }
  check_inputs(f, x, w, bias, o.groups);
  check_together(f.op, {&x, &w, &bias});
  return batched(x, f.spatial, [&](const Tensor& batch) {
    auto known = kept.find({batch, w, bias, o});
    if (!known) {
      const ConvLike like = setup_of(f.op, batch.sizes(), w.sizes(), o);
      check_storable(f.op, like.x_sizes, x.dtype());
      known = kept.keep({batch, w, bias, o}, {like, plain_geometry(like.setup)});
    }
    return biased_call(batch, w, bias, *known);
  });
}

}  // namespace

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o) {
  return conv_transpose({"conv_transpose1d", 1}, x, w, b, o);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o) {
  return conv_transpose({"conv_transpose2d", 2}, x, w, b, o);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvTransposeOptions& o) {
  return conv_transpose({"conv_transpose3d", 3}, x, w, b, o);
}

}  // namespace tessera
