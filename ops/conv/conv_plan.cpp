#include "ops/conv/conv_plan.h"

#include <algorithm>

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"

namespace tessera {
namespace {

constexpr char kSpatial[] = {'H', 'W', 'D'};

Rule conv_rule(const ConvSetup& s, const Dims& w_sizes, bool has_bias) {
  Rule r;
  r.linearity = has_bias ? Linearity::None : Linearity::Each;
  r.may_miss = !has_bias;
  const bool grouped = s.groups > 1;  // the weight's channels are not the input's then
  const RuleDim n{'n', false, false};
  const bool depthwise = s.depthwise(w_sizes);
  const RuleDim c{grouped ? '\0' : 'c', false, false};
  const RuleDim o{grouped && !depthwise ? '\0' : 'o', false, false};
  RuleTerm x{n, depthwise ? o : c};
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
BoxMap plan_halo(const ConvPlan& plan, const Dims& x_sizes, const ConvSetup& s) {
  return plan_box_map(plan.x.get(), x_sizes, [&](int rank, int d) -> DimSegments {
    if (d < 2 || !plan.x->cut(d)) return own_segments(*plan.x, rank, d);
    const Intervals& mine = plan.y->intervals(d, rank);
    const Window& w = s.windows[static_cast<std::size_t>(d - 2)];
    const Interval need = mine.empty() ? Interval{0, 0} : w.input_of(mine.front());
    return {window_segments(need, x_sizes[d], w.periodic), need.length()};
  });
}

// Outputs of a rank whose windows stay inside its own rows: [first, second); empty if that is not worth it.
Interval inner_outputs(const Window& w, Interval own, Interval out, std::int64_t n) {
  const std::int64_t lo = own.lo == 0 ? out.lo : ceil_div(own.lo + w.pad_lo, w.stride);
  const std::int64_t hi = own.hi == n ? out.hi : floor_div(own.hi + w.pad_lo - w.reach(), w.stride) + 1;
  return {std::clamp(lo, out.lo, out.hi), std::clamp(hi, out.lo, out.hi)};
}

// Input rows that outputs read, clipped to the domain.
Interval rows_read(const Window& w, Interval out, std::int64_t n) {
  return out.empty() ? Interval{0, 0} : intersect(w.input_of(out), {0, n});
}

struct EdgeRows {
  Interval top, bottom;  // outputs, global
  Interval inner;
};
EdgeRows edge_rows(const ConvPlan& plan, const Window& w, int dim, int rank) {
  const Intervals& x = plan.x->intervals(dim, rank);
  const Intervals& y = plan.y->intervals(dim, rank);
  if (x.empty() || y.empty()) return {};
  const Interval inner = inner_outputs(w, x.front(), y.front(), plan.x->sizes()[dim]);
  return {{y.front().lo, std::min(inner.lo, y.front().hi)},
          {std::max(inner.hi, y.front().lo), y.front().hi},
          inner};
}

// Splitting pays when exactly one dim is cut, and can be done when every rank with outputs has some inner
// ones.
void try_split(ConvPlan& plan, const Dims& x_sizes, const ConvSetup& s) {
  int cut = -1;
  for (int d = 0; d < s.spatial(); ++d)
    if (plan.in_buffer[static_cast<std::size_t>(d)]) {
      if (cut >= 0 || s.windows[static_cast<std::size_t>(d)].periodic) return;
      cut = d;
    }
  if (cut < 0) return;
  const Window& w = s.windows[static_cast<std::size_t>(cut)];
  const int dim = cut + 2;
  const std::int64_t n = x_sizes[dim];
  const MeshCore& core = *plan.x->mesh_core();
  for (int r = 0; r < core.size; ++r) {
    const Intervals& y = plan.y->intervals(dim, r);
    if (y.empty()) continue;
    if (plan.x->intervals(dim, r).empty()) return;
    const EdgeRows e = edge_rows(plan, w, dim, r);
    // Windows that read nothing but padding stay with the halo's buffer.
    const auto reads_nothing = [&](Interval out) { return !out.empty() && rows_read(w, out, n).empty(); };
    if (e.inner.empty() || reads_nothing(e.inner) || reads_nothing(e.top) || reads_nothing(e.bottom)) return;
  }
  plan.split_dim = cut;
  plan.edges = plan_box_map(plan.x.get(), x_sizes, [&](int rank, int d) -> DimSegments {
    if (d != dim) return own_segments(*plan.x, rank, d);
    const EdgeRows e = edge_rows(plan, w, dim, rank);
    const Interval top = rows_read(w, e.top, n);
    const Interval bottom = rows_read(w, e.bottom, n);
    std::vector<Segment> segments;
    if (!top.empty()) segments.push_back({top.lo, 0, top.length()});
    if (!bottom.empty()) segments.push_back({bottom.lo, top.length(), bottom.length()});
    return {segments, top.length() + bottom.length()};
  });
  const Intervals& own = plan.x->intervals(dim);
  const Intervals& out = plan.y->intervals(dim);
  if (own.empty() || out.empty()) return;
  const EdgeRows e = edge_rows(plan, w, dim, core.rank);
  const std::int64_t top_rows = rows_read(w, e.top, n).length();
  auto add = [&](Interval outputs, std::int64_t origin, bool edge) {
    if (outputs.empty()) return;
    const Interval need = w.input_of(outputs);
    const Interval read = intersect(need, {0, n});
    plan.pieces.push_back({{outputs.lo - out.front().lo, outputs.hi - out.front().lo},
                           {read.lo - origin, read.hi - origin},
                           edge,
                           read.lo - need.lo,
                           need.hi - read.hi});
  };
  add(e.inner, own.front().lo, false);
  add(e.top, rows_read(w, e.top, n).lo, true);
  add(e.bottom, rows_read(w, e.bottom, n).lo - top_rows, true);
}

// Periodic dims that are whole wrap on every rank by itself, after the exchange, so that no copy of a column
// travels.
BoxMap plan_wrap(const Dims& buffer, const std::vector<bool>& wraps, const Dims& y_sizes,
                 const ConvSetup& s) {
  return plan_box_map(nullptr, buffer, [&](int, int d) -> DimSegments {
    if (d < 2 || !wraps[static_cast<std::size_t>(d - 2)]) return {{{0, 0, buffer[d]}}, buffer[d]};
    const Interval need = s.windows[static_cast<std::size_t>(d - 2)].input_of({0, y_sizes[d]});
    return {window_segments(need, buffer[d], true), need.length()};
  });
}

void finish(ConvPlan& plan, const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& s) {
  bool any_cut = false;
  bool any_wrap = false;
  std::vector<bool> wraps;
  for (int d = 0; d < s.spatial(); ++d) {
    const bool cut = plan.x && plan.x->cut(d + 2);
    wraps.push_back(!cut && s.windows[static_cast<std::size_t>(d)].periodic);
    plan.in_buffer.push_back(cut || wraps.back());
    any_cut = any_cut || cut;
    any_wrap = any_wrap || wraps.back();
  }
  bool travels = false;
  if (any_cut) {
    BoxMap map = plan_halo(plan, x_sizes, s);
    travels = !map.plan.local_only();
    plan.halo = WindowBuffer(std::move(map));
  }
  if (any_wrap) {
    const Dims fetched = plan.halo.buffer_sizes(plan.x ? plan.x->local_sizes() : x_sizes);
    plan.wrap = WindowBuffer(plan_wrap(fetched, wraps, y_sizes, s));
  }
  if (travels && !any_wrap) try_split(plan, x_sizes, s);
}

bool along_some_axis_alike(const ShardSpec& x, const ShardSpec& w) {
  for (std::size_t a = 0; a < x.placements().size(); ++a)
    if (x.placements()[a].is_replicate() && w.placements()[a].is_replicate() &&
        x.mesh().size(static_cast<int>(a)) > 1)
      return true;
  return false;
}

}  // namespace

void ConvSetup::check_fits(const Dims& x) const {
  for (int d = 0; d < spatial(); ++d) {
    const std::int64_t n = x[d + 2];
    const Window& window = windows[static_cast<std::size_t>(d)];
    TS_CHECK(n + window.pad_lo + window.pad_hi >= window.reach(), "conv",
             "the kernel reaches over {} positions of spatial dim {}, the padded input has {}",
             window.reach(), d, n + window.pad_lo + window.pad_hi);
    TS_CHECK(!window.periodic || (window.pad_lo <= n && window.pad_hi <= n), "conv",
             "circular padding of {} needs at least as many positions, spatial dim {} has {}",
             std::max(window.pad_lo, window.pad_hi), d, n);
  }
}

Dims ConvSetup::output_sizes(const Dims& x, const Dims& w) const {
  Dims y{x[0], w[0]};
  for (int d = 0; d < spatial(); ++d) y.push_back(windows[static_cast<std::size_t>(d)].output_size(x[d + 2]));
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
  const Rule rule = conv_rule(setup, inputs[1]->sizes(), inputs[2] != nullptr);
  RuleProblem problem{&rule, inputs, {y_sizes}, {}};
  for (int d = 0; d < setup.spatial(); ++d)
    problem.windows[kSpatial[d]] = setup.windows[static_cast<std::size_t>(d)];
  Strategy s = resolve(problem);
  auto plan = std::make_shared<ConvPlan>();
  plan->x = s.inputs[0];
  plan->w = s.inputs[1];
  plan->y = s.outputs[0];
  const bool own_channels = setup.depthwise(plan->w->sizes());
  plan->replicated = along_some_axis_alike(*plan->x, *plan->w);
  plan->groups = own_channels ? std::max<std::int64_t>(plan->w->local_sizes()[0], 1) : setup.groups;
  finish(*plan, plan->x->sizes(), y_sizes, setup);
  s.extra = std::move(plan);
  return s;
}

ConvPlan plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& setup) {
  ConvPlan plan;
  plan.groups = setup.groups;
  finish(plan, x_sizes, y_sizes, setup);
  return plan;
}

cpu::ConvGeometry plain_geometry(const ConvSetup& setup) {
  cpu::ConvGeometry g;
  g.groups = setup.groups;
  for (const Window& w : setup.windows) {
    g.stride.push_back(w.stride);
    g.dilation.push_back(w.dilation);
    g.padding_lo.push_back(w.pad_lo);
    g.padding_hi.push_back(std::max<std::int64_t>(0, w.pad_hi));
  }
  return g;
}

cpu::ConvGeometry local_geometry(const ConvPlan& plan, const ConvSetup& setup) {
  cpu::ConvGeometry g = plain_geometry(setup);
  g.groups = plan.groups;
  g.replicated = plan.replicated;
  for (int d = 0; d < setup.spatial(); ++d)
    if (plan.in_buffer[static_cast<std::size_t>(d)]) g.padding_lo[d] = g.padding_hi[d] = 0;
  return g;
}

cpu::ConvGeometry piece_geometry(const ConvPlan& plan, const ConvSetup& setup, const ConvPiece& piece) {
  cpu::ConvGeometry g = local_geometry(plan, setup);
  g.padding_lo[plan.split_dim] = piece.pad_lo;
  g.padding_hi[plan.split_dim] = piece.pad_hi;
  return g;
}

Dims buffer_sizes(const ConvPlan& plan, const Dims& local) {
  return plan.wrap.buffer_sizes(plan.halo.buffer_sizes(local));
}

Array halo_buffer(const ConvPlan& plan, const Array& x) { return plan.wrap.fetch(plan.halo.fetch(x)); }

Array halo_adjoint(const ConvPlan& plan, const Array& gradient) {
  return plan.halo.give_back(plan.wrap.give_back(gradient));
}

}  // namespace tessera
