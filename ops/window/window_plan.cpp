#include "ops/window/window_plan.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "mesh/mesh_state.h"
#include "ops/shape/layout_ops.h"
#include "runtime/graph_capture.h"

namespace tessera {
namespace {

Interval only(const Intervals& part) { return part.empty() ? Interval() : part.front(); }

// Outputs live where their homes lie.
DimCut home_cut(const DimCut& input, const std::vector<std::int64_t>& home) {
  const auto first_at = [&](std::int64_t position) {
    return std::lower_bound(home.begin(), home.end(), position) - home.begin();
  };
  DimCut cut{input.axes, {}};
  for (const Intervals& part : input.parts) {
    const Interval own = only(part);
    cut.parts.push_back(own.empty() ? Intervals() : Intervals{{first_at(own.lo), first_at(own.hi)}});
  }
  return cut;
}

std::int64_t position_in(const Intervals& own, std::int64_t global) {
  std::int64_t at = 0;
  for (Interval i : own) {
    if (global >= i.lo && global < i.hi) return at + global - i.lo;
    at += i.length();
  }
  return -1;
}

class Planner {
 public:
  Planner(const AxisMaps& maps, WindowUse use) : maps_(maps), use_(use), owed_(maps.size(), false) {}

  WindowPlan make(const SpecPtr& x) {
    rows_.reserve(maps_.size());
    for (const AxisMap& axis : maps_) rows_.push_back(axis.make(x != nullptr));
    if (x) choose_specs(x);
    plan_.axes.reserve(maps_.size());
    for (std::size_t i = 0; i < maps_.size(); ++i) plan_.axes.push_back(axis_plan(i));
    bool fetches = false;
    for (std::size_t i = 0; i < maps_.size(); ++i) fetches = fetches || reaches_over(i);
    if (fetches) {
      plan_.buffer = WindowBuffer(box_map(), message_order(plan_.x->sizes().size()));
      const ExchangePlan& exchange = plan_.buffer.map()->plan;
      if (use_ == WindowUse::Select) {
        plan_.parts = window_parts(exchange, plan_.axes);
      } else {
        plan_.terms = window_terms(exchange, plan_.axes);
      }
    }
    finish(plan_.axes);
    finish(plan_.terms.own);
    for (WindowTerm& term : plan_.terms.arriving) finish(term.axes);
    return std::move(plan_);
  }

 private:
  bool reaches_over(std::size_t i) const { return plan_.x && plan_.x->cut(maps_[i].dim) && !owed_[i]; }

  void choose_specs(const SpecPtr& given) {
    plan_.x = use_ == WindowUse::Select ? given : keeping_sums(*given);
    std::vector<std::optional<DimCut>> homes(maps_.size());
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const AxisMap& axis = maps_[i];
      if (!plan_.x->cut(axis.dim)) continue;
      DimCut cut = *plan_.x->cut(axis.dim);
      if (!plan_.x->single_interval(axis.dim)) cut = even_cut(cut, axis.inputs);
      homes[i] = home_cut(cut, rows_[i].home);
      owed_[i] = use_ != WindowUse::Select && sums_are_smaller(i, cut, *homes[i]);
      if (!owed_[i]) plan_.x = with_cut(*plan_.x, axis.dim, axis.inputs, cut);
    }
    plan_.y = plan_.x;
    for (std::size_t i = 0; i < maps_.size(); ++i) {
      const CutPtr& cut = plan_.x->cut(maps_[i].dim);
      if (cut && owed_[i])
        for (int a : cut->axes) plan_.summed |= 1U << static_cast<unsigned>(a);
      if (owed_[i]) homes[i].reset();
      plan_.y = with_cut(*plan_.y, maps_[i].dim, maps_[i].outputs, homes[i]);
    }
    Placements p = plan_.y->placements();
    for (std::size_t a = 0; a < p.size(); ++a)
      if ((plan_.summed >> a & 1U) != 0) p[a] = Partial();
    plan_.y = with_placements(*plan_.y, p);
  }

  // Inputs to fetch along this dim against outputs whose sums are to be made.
  bool sums_are_smaller(std::size_t i, const DimCut& cut, const DimCut& homes) const {
    double fetched = 0;
    for (std::size_t p = 0; p < cut.parts.size(); ++p) {
      const Interval reads = positions_read(rows_[i].rows, only(homes.parts[p]));
      if (reads.empty()) continue;
      const Interval own = intersect(reads, only(cut.parts[p]));
      fetched += static_cast<double>(reads.length() - std::max<std::int64_t>(0, own.length()));
    }
    double sums = 2 * static_cast<double>(cut.parts.size() - 1);
    for (std::size_t j = 0; j < maps_.size(); ++j) {
      sums *= static_cast<double>(maps_[j].outputs);
      if (j != i) fetched *= static_cast<double>(maps_[j].inputs);
    }
    return sums < fetched;
  }

  Interval need(std::size_t i, int rank) const {
    return positions_read(rows_[i].rows, only(plan_.y->intervals(maps_[i].dim, rank)));
  }

  AxisPlan axis_plan(std::size_t i) {
    const AxisMap& axis = maps_[i];
    AxisPlan p;
    p.dim = axis.dim;
    p.growth =
        static_cast<double>(axis.outputs) / static_cast<double>(std::max<std::int64_t>(1, axis.inputs));
    p.width = axis.inputs;
    if (reaches_over(i)) {
      const int rank = plan_.x->mesh_core()->rank;
      const Interval reads = need(i, rank);
      p.base = reads.lo;
      p.width = reads.length();
      p.rows = picked_rows(rows_[i].rows, only(plan_.y->intervals(axis.dim, rank)),
                           [&](std::int64_t g) { return g - reads.lo; });
    } else if (owed_[i]) {
      const Intervals& own = plan_.x->intervals(axis.dim);
      p.width = plan_.x->local_sizes()[axis.dim];
      p.rows =
          picked_rows(rows_[i].rows, {0, axis.outputs}, [&](std::int64_t g) { return position_in(own, g); });
    } else {
      p.rows = std::move(rows_[i].rows);  // nobody asks for them again
    }
    return p;
  }

  void finish(std::vector<AxisPlan>& axes) const {
    if (use_ == WindowUse::Transposed) transpose(axes);
    sort_by_growth(axes);
  }

  BoxMap box_map() const {
    return plan_box_map(plan_.x.get(), plan_.x->sizes(), [&](int rank, int d) -> DimSegments {
      for (std::size_t i = 0; i < maps_.size(); ++i)
        if (maps_[i].dim == d && reaches_over(i)) {
          const Interval reads = need(i, rank);
          return {window_segments(reads, maps_[i].inputs, PaddingMode::Zeros), reads.length()};
        }
      return own_segments(*plan_.x, rank, d);
    });
  }

  const AxisMaps& maps_;
  WindowUse use_;
  std::vector<RowMap> rows_;
  std::vector<bool> owed_;
  WindowPlan plan_;
};

bool same_axis(const AxisMap& a, const AxisMap& b) {
  const auto all = [](const AxisMap& m) {
    const Window& w = m.window;
    return std::make_tuple(m.dim, m.inputs, m.outputs, m.rows, m.scale, m.flag, w.kernel, w.stride, w.pad_lo,
                           w.pad_hi, w.dilation, w.mode);
  };
  return all(a) == all(b);
}

struct PlainPlan {
  AxisMaps maps;
  WindowUse use;
  std::shared_ptr<const WindowPlan> plan;
};

std::shared_ptr<const WindowPlan> plain_plan(const AxisMaps& maps, WindowUse use) {
  constexpr std::size_t kMaxPlans = 64;
  thread_local std::unordered_map<std::size_t, PlainPlan> plans;
  const std::size_t key =
      Hash().add(static_cast<std::int64_t>(hash_of(maps))).add(static_cast<std::int64_t>(use));
  const auto found = plans.find(key);
  if (found != plans.end() && found->second.use == use &&
      std::equal(maps.begin(), maps.end(), found->second.maps.begin(), found->second.maps.end(), same_axis))
    return found->second.plan;
  auto plan = std::make_shared<const WindowPlan>(plan_windows(nullptr, maps, use));
  if (plans.size() >= kMaxPlans) plans.clear();
  plans.insert_or_assign(key, PlainPlan{maps, use, plan});
  return plan;
}

}  // namespace

std::shared_ptr<const WindowPlan> plan_of(const LocalCall& call, const AxisMaps& maps, WindowUse use) {
  auto plan =
      call.plan ? std::static_pointer_cast<const WindowPlan>(call.plan->extra) : plain_plan(maps, use);
  if (GraphCapture* capture = GraphCapture::current())
    capture->keep(std::const_pointer_cast<WindowPlan>(plan));
  return plan;
}

WindowPlan plan_windows(const SpecPtr& x, const AxisMaps& maps, WindowUse use) {
  return Planner(maps, use).make(x);
}

}  // namespace tessera
