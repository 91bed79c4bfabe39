#include "ops/conv/conv_kept.h"

#include <algorithm>
#include <unordered_map>

namespace tessera {
namespace {

constexpr char kSpatial[] = {'H', 'W', 'D'};

// The sum that a weight owes is made first beside a halo, since nobody sees all of the input that its windows
// read before that has arrived (see ops/elementwise/owed_terms.h).
Linearity linearity_of(const ShardSpec& x, bool linear) {
  if (!linear) return Linearity::None;
  for (int d = 2; d < x.dim(); ++d)
    if (x.cut(d)) return Linearity::First;
  return Linearity::Each;
}

// `linear`: neither a bias nor an activation follows the sums.
Rule conv_rule(const ConvSetup& s, const Dims& w_sizes, bool linear) {
  Rule r;
  r.may_miss = linear;
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
    const Window& w = s.windows[d - 2];
    const Interval need = mine.empty() ? Interval{0, 0} : w.input_of(mine.front());
    return {window_segments(need, x_sizes[d], w.mode), need.length()};
  });
}

// Whole dims whose padding is taken from them (they wrap, say) get it on every rank by itself, after the
// exchange, so that no copy of a column travels.
BoxMap plan_wrap(const Dims& buffer, const std::vector<bool>& wraps, const Dims& y_sizes,
                 const ConvSetup& s) {
  return plan_box_map(nullptr, buffer, [&](int, int d) -> DimSegments {
    if (d < 2 || !wraps[static_cast<std::size_t>(d - 2)]) return {{{0, 0, buffer[d]}}, buffer[d]};
    const Window& w = s.windows[d - 2];
    const Interval need = w.input_of({0, y_sizes[d]});
    return {window_segments(need, buffer[d], w.mode), need.length()};
  });
}

Interval only_interval(const Intervals& list) { return list.empty() ? Interval() : list.front(); }

void plan_frames(ConvPlan& plan, const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& s) {
  FrameProblem p;
  p.x_sizes = plan.x ? plan.x->local_sizes() : x_sizes;
  p.y_sizes = plan.y ? plan.y->local_sizes() : y_sizes;
  for (int d = 0; d < s.spatial(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    FrameDim dim{s.windows[d], x_sizes[d + 2], plan.in_buffer[i], {0, x_sizes[d + 2]}, {0, y_sizes[d + 2]}};
    if (plan.x && plan.x->cut(d + 2)) {
      dim.own = only_interval(plan.x->intervals(d + 2));
      dim.out = only_interval(plan.y->intervals(d + 2));
    }
    p.dims.push_back(dim);
  }
  if (plan.halo.map() != nullptr) p.halo = &plan.halo.map()->plan;
  if (plan.wrap.map() != nullptr) p.wrap = &plan.wrap.map()->plan;
  plan.frame = plan_frame(p, false);
  plan.added = plan_frame(p, true);
}

void finish(ConvPlan& plan, const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& s) {
  bool any_cut = false;
  bool any_wrap = false;
  std::vector<bool> wraps;
  plan.geometry = plain_geometry(s);
  for (int d = 0; d < s.spatial(); ++d) {
    const bool cut = plan.x && plan.x->cut(d + 2);
    wraps.push_back(!cut && s.windows[d].reads_beyond());
    plan.in_buffer.push_back(cut || wraps.back());
    if (plan.in_buffer.back()) plan.geometry.padding_lo[d] = plan.geometry.padding_hi[d] = 0;
    any_cut = any_cut || cut;
    any_wrap = any_wrap || wraps.back();
  }
  if (any_cut) plan.halo = WindowBuffer(plan_halo(plan, x_sizes, s), message_order(x_sizes.size()));
  if (any_wrap) {
    const Dims fetched = plan.halo.buffer_sizes(plan.x ? plan.x->local_sizes() : x_sizes);
    plan.wrap = WindowBuffer(plan_wrap(fetched, wraps, y_sizes, s));
  }
  if (any_cut || any_wrap) plan_frames(plan, x_sizes, y_sizes, s);
}

bool along_some_axis_alike(const ShardSpec& x, const ShardSpec& w) {
  for (std::size_t a = 0; a < x.placements().size(); ++a)
    if (x.placements()[a].is_replicate() && w.placements()[a].is_replicate() &&
        x.mesh().size(static_cast<int>(a)) > 1)
      return true;
  return false;
}

}  // namespace

void ConvSetup::check_fits(const char* op, const Dims& x) const {
  for (int d = 0; d < spatial(); ++d) {
    const std::int64_t n = x[d + 2];
    const Window& window = windows[d];
    TS_CHECK(n + window.pad_lo + window.pad_hi >= window.reach(), op,
             "the kernel reaches over {} positions of spatial dim {}, the padded input has {}",
             window.reach(), d, n + window.pad_lo + window.pad_hi);
    const std::int64_t most = std::max(window.pad_lo, window.pad_hi);
    TS_CHECK(window.mode != PaddingMode::Circular || most <= n, op,
             "circular padding of {} needs at least as many positions, spatial dim {} has {}", most, d, n);
    TS_CHECK(window.mode != PaddingMode::Reflect || most < n, op,
             "reflected padding of {} needs more positions than that, spatial dim {} has {}", most, d, n);
    TS_CHECK(window.mode != PaddingMode::Replicate || n > 0, op,
             "replicated padding of {} needs a position, spatial dim {} has none", most, d);
  }
}

Dims ConvSetup::output_sizes(const Dims& x, const Dims& w) const {
  Dims y{x[0], w[0]};
  for (int d = 0; d < spatial(); ++d) y.push_back(windows[d].output_size(x[d + 2]));
  return y;
}

std::size_t ConvSetup::hash() const {
  Hash h;
  h.add(groups).add(frames_from());
  for (const Window& w : windows)
    h.add(w.kernel)
        .add(w.stride)
        .add(w.pad_lo)
        .add(w.pad_hi)
        .add(w.dilation)
        .add(static_cast<std::int64_t>(w.mode));
  return h;
}

Strategy conv_strategy(const std::vector<SpecPtr>& inputs, const Dims& y_sizes, const ConvSetup& setup,
                       const ConvResult& result) {
  const bool linear = inputs[2] == nullptr && result.activation == Activation::None;
  Rule rule = conv_rule(setup, inputs[1]->sizes(), linear);
  rule.linearity = linearity_of(*inputs[0], linear);
  RuleProblem problem{&rule, inputs, {y_sizes}, {}};
  for (int d = 0; d < setup.spatial(); ++d) problem.windows[kSpatial[d]] = setup.windows[d];
  Strategy s = resolve(problem);
  auto plan = std::make_shared<ConvPlan>();
  plan->x = s.inputs[0];
  plan->w = s.inputs[1];
  plan->y = s.outputs[0];
  const bool own_channels = setup.depthwise(plan->w->sizes());
  finish(*plan, plan->x->sizes(), y_sizes, setup);
  plan->geometry.replicated = along_some_axis_alike(*plan->x, *plan->w);
  if (own_channels) plan->geometry.groups = std::max<std::int64_t>(plan->w->local_sizes()[0], 1);
  s.extra = std::move(plan);
  if (result.keeps) s.outputs.push_back(s.outputs[0]);
  return s;
}

std::shared_ptr<const ConvPlan> plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes,
                                                const ConvSetup& setup) {
  struct Entry {
    Dims x, y;
    ConvSetup setup;
    std::int64_t frames = 0;
    std::shared_ptr<const ConvPlan> plan;
  };
  const auto fits = [&](const Entry& e) {
    return e.x == x_sizes && e.y == y_sizes && e.setup == setup && e.frames == frames_from();
  };
  constexpr std::size_t kMost = 256;
  thread_local std::unordered_map<std::size_t, Entry> kept;
  thread_local const Entry* last = nullptr;  // asked for: mostly again, for less than a key costs
  if (last != nullptr && fits(*last)) return last->plan;
  const std::size_t key = Hash().add(x_sizes).add(y_sizes).add(static_cast<std::int64_t>(setup.hash()));
  if (const auto found = kept.find(key); found != kept.end() && fits(found->second)) {
    last = &found->second;
    return last->plan;
  }
  auto plan = std::make_shared<ConvPlan>();
  finish(*plan, x_sizes, y_sizes, setup);
  if (kept.size() >= kMost) {
    last = nullptr;
    kept.clear();
  }
  Entry& entry = kept[key];
  entry = {x_sizes, y_sizes, setup, frames_from(), plan};
  last = &entry;
  return plan;
}

ConvKnown known_conv(const ConvSetup& setup, const Dims& x, const Dims& w, bool sharded) {
  ConvKnown known{setup, setup.output_sizes(x, w), sharded ? setup.hash() : 0, {}, nullptr};
  if (sharded) return known;
  known.geometry = plain_geometry(setup);
  if (setup.reads_beyond()) known.plan = plain_conv_plan(x, known.y_sizes, setup);
  return known;
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

Dims buffer_sizes(const ConvPlan& plan, const Dims& local) {
  return plan.wrap.buffer_sizes(plan.halo.buffer_sizes(local));
}

Array halo_buffer(const ConvPlan& plan, const Array& x) {
  const Array fetched = plan.halo.fetch(x);
  if (!plan.wrap.fills() || x.device() != Device::Cpu) return plan.wrap.fetch(fetched);
  // Channels last, as kernels read maps without another copy, however x lies.
  const Dims sizes = plan.wrap.buffer_sizes(fetched.sizes());
  Array buffer = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), x.dtype(), x.device());
  plan.wrap.fill(buffer, fetched);
  return buffer;
}

Array halo_adjoint(const ConvPlan& plan, const Array& gradient) {
  return plan.halo.give_back(plan.wrap.give_back(gradient));
}

}  // namespace tessera
