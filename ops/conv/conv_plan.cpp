#include "ops/conv/conv_plan.h"

#include "autograd/adjoints.h"

namespace tessera {
namespace {

constexpr char kSpatial[] = {'H', 'W', 'D'};

Rule conv_rule(const ConvSetup& s, bool has_bias) {
  Rule r;
  r.linearity = has_bias ? Linearity::None : Linearity::Each;
  r.may_miss = !has_bias;
  const bool grouped = s.groups > 1;  // the weight's channels are not the input's then
  const RuleDim n{'n', false, false};
  const RuleDim c{grouped ? '\0' : 'c', false, false};
  const RuleDim o{grouped ? '\0' : 'o', false, false};
  RuleTerm x{n, c};
  RuleTerm w{o, c};
  RuleTerm y{n, o};
  for (int d = 0; d < s.spatial(); ++d) {
    x.push_back({kSpatial[d], true, false});
    w.push_back({});
    y.push_back({kSpatial[d], false, false});
  }
  r.inputs = {x, w, {o}};
  r.outputs = {y};
  return r;
}

// Which input positions the windows of a rank's outputs read, dim by dim.
BoxMap plan_halo(const ConvPlan& plan, const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& s) {
  return plan_box_map(plan.x.get(), x_sizes, [&](int rank, int d) -> DimSegments {
    if (d < 2 || !plan.in_buffer[static_cast<std::size_t>(d - 2)]) {
      if (!plan.x) return {{{0, 0, x_sizes[d]}}, x_sizes[d]};
      LocalLayout own = layout_of(*plan.x, rank);
      return {own.dims[static_cast<std::size_t>(d)], own.sizes[d]};
    }
    const Intervals mine = plan.y ? plan.y->intervals(d, rank) : Intervals{{0, y_sizes[d]}};
    const Window& w = s.windows[static_cast<std::size_t>(d - 2)];
    const Interval need = mine.empty() ? Interval{0, 0} : w.input_of(mine.front());
    return {window_segments(need, x_sizes[d], w.periodic), need.length()};
  });
}

void finish(ConvPlan& plan, const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& s) {
  bool any = false;
  for (int d = 0; d < s.spatial(); ++d) {
    const bool cut = plan.x && plan.x->cut(d + 2);
    plan.in_buffer.push_back(cut || s.windows[static_cast<std::size_t>(d)].periodic);
    any = any || plan.in_buffer.back();
  }
  if (any) plan.halo = plan_halo(plan, x_sizes, y_sizes, s);
  plan.direct = !any;
}

}  // namespace

Dims ConvSetup::output_sizes(const Dims& x, const Dims& w) const {
  Dims y{x[0], w[0]};
  for (int d = 0; d < spatial(); ++d) {
    const std::int64_t n = x[d + 2];
    const Window& window = windows[static_cast<std::size_t>(d)];
    TS_CHECK(n + window.pad_lo + window.pad_hi >= window.reach(), "conv",
             "the kernel reaches over {} positions of spatial dim {}, the padded input has {}",
             window.reach(), d, n + window.pad_lo + window.pad_hi);
    TS_CHECK(!window.periodic || (window.pad_lo <= n && window.pad_hi <= n), "conv",
             "circular padding of {} needs at least as many positions, spatial dim {} has {}",
             std::max(window.pad_lo, window.pad_hi), d, n);
    y.push_back(window.output_size(n));
  }
  return y;
}

std::size_t ConvSetup::hash() const {
  Hash h;
  h.add(groups);
  for (const Window& w : windows)
    h.add(w.kernel).add(w.stride).add(w.pad_lo).add(w.pad_hi).add(w.dilation).add(std::int64_t{w.periodic});
  return h;
}

Strategy conv_strategy(const std::vector<SpecPtr>& inputs, const Dims& y_sizes, const ConvSetup& setup) {
  const Rule rule = conv_rule(setup, inputs[2] != nullptr);
  RuleProblem problem{&rule, inputs, {y_sizes}, {}};
  for (int d = 0; d < setup.spatial(); ++d)
    problem.windows[kSpatial[d]] = setup.windows[static_cast<std::size_t>(d)];
  Strategy s = resolve(problem);
  auto plan = std::make_shared<ConvPlan>();
  plan->x = s.inputs[0];
  plan->w = s.inputs[1];
  plan->y = s.outputs[0];
  finish(*plan, plan->x->sizes(), y_sizes, setup);
  s.extra = std::move(plan);
  return s;
}

ConvPlan plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& setup) {
  ConvPlan plan;
  finish(plan, x_sizes, y_sizes, setup);
  return plan;
}

cpu::ConvGeometry local_geometry(const ConvPlan& plan, const ConvSetup& setup) {
  cpu::ConvGeometry g;
  g.groups = setup.groups;
  for (std::size_t d = 0; d < setup.windows.size(); ++d) {
    const Window& w = setup.windows[d];
    g.stride.push_back(w.stride);
    g.dilation.push_back(w.dilation);
    g.padding_lo.push_back(plan.in_buffer[d] ? 0 : w.pad_lo);
    g.padding_hi.push_back(plan.in_buffer[d] ? 0 : w.pad_hi);
  }
  return g;
}

Array halo_buffer(const ConvPlan& plan, const Array& x) {
  if (plan.direct) return x;
  const ExchangePlan& e = plan.halo.plan;
  if (e.local_only() && e.own.pieces.size() == 1 && e.covers)
    return x.box(e.own.pieces[0].from, e.own.pieces[0].extent);
  return exchange_forward(e, plan.halo.comm, x);
}

}  // namespace tessera
