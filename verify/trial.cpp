#include "verify/trial.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "runtime/error.h"
#include "verify/random.h"

namespace tessera::verify {
namespace {

enum class CutStyle { Even, Random, SizeOne, Empty, Interleaved, Mixed };
constexpr int kStyles = 6;

// `parts` lengths >= 0 that sum to n.
std::vector<std::int64_t> random_lengths(Random& random, std::int64_t n, int parts) {
  std::vector<std::int64_t> points{0, n};
  for (int i = 1; i < parts; ++i) points.push_back(random.integer(0, n));
  std::sort(points.begin(), points.end());
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < parts; ++i) {
    const auto at = static_cast<std::size_t>(i);
    lengths.push_back(points[at + 1] - points[at]);
  }
  return lengths;
}

// The same with one part of length `fixed` at a random place.
std::vector<std::int64_t> lengths_with(Random& random, std::int64_t n, int parts, std::int64_t fixed) {
  if (parts == 1 || n < fixed) return random_lengths(random, n, parts);
  std::vector<std::int64_t> lengths = random_lengths(random, n - fixed, parts - 1);
  lengths.insert(lengths.begin() + random.integer(0, parts - 1), fixed);
  return lengths;
}

// Pieces dealt out to the parts at random. Usually a part's pieces ascend, as they do after reshapes; a roll
// leaves them in another order.
std::vector<Intervals> interleaved(Random& random, std::int64_t n, int parts) {
  std::vector<Intervals> result(static_cast<std::size_t>(parts));
  const bool any_order = random.chance(25);
  std::int64_t at = 0;
  for (const std::int64_t length : random_lengths(random, n, 2 * parts + 1)) {
    if (length == 0) continue;
    Intervals& part = result[static_cast<std::size_t>(random.integer(0, parts - 1))];
    part.insert(any_order && random.chance(50) ? part.begin() : part.end(), {at, at + length});
    at += length;
  }
  return result;
}

DimCut draw_cut(Random& random, const std::vector<int>& axes, std::int64_t n, int parts, CutStyle style) {
  if (style == CutStyle::Mixed) style = static_cast<CutStyle>(random.integer(0, kStyles - 2));
  DimCut cut;
  cut.axes = axes;
  std::vector<std::int64_t> lengths;
  switch (style) {
    case CutStyle::Interleaved:
      cut.parts = interleaved(random, n, parts);
      // The inner axis may be named first.
      if (axes.size() > 1 && random.chance(40)) std::reverse(cut.axes.begin(), cut.axes.end());
      return cut;
    case CutStyle::Even:
      for (const Interval i : default_partition(n, parts)) cut.parts.push_back({i});
      return cut;
    case CutStyle::SizeOne:
      lengths = lengths_with(random, n, parts, 1);
      break;
    case CutStyle::Empty:
      lengths = lengths_with(random, n, parts, 0);
      break;
    default:
      lengths = random_lengths(random, n, parts);
  }
  return cut_from_lengths(axes, lengths);
}

int parts_of(const std::vector<int>& axes, const std::vector<int>& mesh) {
  int parts = 1;
  for (const int a : axes) parts *= mesh[static_cast<std::size_t>(a)];
  return parts;
}

std::vector<int> axes_on(const Placements& placements, int dim) {
  std::vector<int> axes;
  for (std::size_t a = 0; a < placements.size(); ++a)
    if (placements[a].is_shard() && placements[a].dim == dim) axes.push_back(static_cast<int>(a));
  return axes;
}

TensorPlan replicated_plan(const std::vector<int>& mesh, const Dims& sizes) {
  TensorPlan plan;
  plan.placements.resize(mesh.size());
  plan.cuts.resize(static_cast<std::size_t>(sizes.size()));
  return plan;
}

TensorPlan draw_plan(Random& random, const std::vector<int>& mesh, const Dims& sizes, CutStyle style) {
  TensorPlan plan = replicated_plan(mesh, sizes);
  for (std::size_t a = 0; a < mesh.size() && !sizes.empty(); ++a) {
    if (random.chance(25)) continue;
    const bool again = a > 0 && plan.placements[a - 1].is_shard() && random.chance(30);
    plan.placements[a] =
        again ? plan.placements[a - 1] : Shard(static_cast<int>(random.integer(0, sizes.size() - 1)));
  }
  for (int d = 0; d < sizes.size(); ++d) {
    const std::vector<int> axes = axes_on(plan.placements, d);
    if (axes.empty()) continue;
    const CutStyle own = random.chance(70) ? style : CutStyle::Mixed;
    plan.cuts[static_cast<std::size_t>(d)] = draw_cut(random, axes, sizes[d], parts_of(axes, mesh), own);
  }
  plan.source = static_cast<int>(
      random.integer(0, std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>()) - 1));
  return plan;
}

std::vector<int> draw_mesh(Random& random, int ranks) {
  std::vector<std::vector<int>> flat;   // all ranks on one axis
  std::vector<std::vector<int>> grids;  // truly two-dimensional
  for (int a = 1; a <= ranks; ++a) {
    if (ranks % a != 0) continue;
    ((a == 1 || a == ranks) ? flat : grids).push_back({a, ranks / a});
  }
  const bool grid = !grids.empty() && random.chance(50);
  const bool two_axes = random.chance(30);
  if (grid) return random.pick(grids);
  return two_axes ? random.pick(flat) : std::vector<int>{ranks};
}

// Styles take turns, and every case begins somewhere else: a few trials of many cases see all of them.
CutStyle style_of(const Case& c, const TrialChoice& choice, int number) {
  Random random(choice.seed, c.name + "/style", 0);
  return static_cast<CutStyle>((random.integer(0, kStyles - 1) + number) % kStyles);
}

// What a limit says about one tensor.
TensorPlan plan_of_limit(const Limit& limit, const std::string& name, const Dims& sizes) {
  TensorPlan plan = replicated_plan(limit.mesh, sizes);
  const auto placed = limit.placements.find(name);
  if (placed == limit.placements.end()) return plan;
  for (std::size_t a = 0; a < placed->second.size(); ++a)
    if (placed->second[a].dim) plan.placements[a] = Shard(*placed->second[a].dim);
  const auto cuts = limit.cuts.find(name);
  if (cuts == limit.cuts.end()) return plan;
  for (int d = 0; d < sizes.size(); ++d) {
    const std::vector<int> axes = axes_on(plan.placements, d);
    for (const int a : axes) {
      const auto at = static_cast<std::size_t>(a);
      if (at >= cuts->second.size() || cuts->second[at].empty()) continue;
      const std::vector<std::int64_t>& lengths = cuts->second[at];
      TS_CHECK(static_cast<int>(lengths.size()) == parts_of(axes, limit.mesh), "tessera-verify",
               "limits cut dim {} of \"{}\" into {} parts, its mesh axes have {} ranks", d, name,
               lengths.size(), parts_of(axes, limit.mesh));
      plan.cuts[static_cast<std::size_t>(d)] = cut_from_lengths(axes, lengths);
    }
  }
  return plan;
}

std::string cut_str(const DimCut& cut) {
  std::string text;
  for (const Intervals& part : cut.parts) {
    text += text.empty() ? "" : " ";
    if (part.empty()) text += "-";
    for (std::size_t i = 0; i < part.size(); ++i)
      text += fmt::format("{}[{},{})", i == 0 ? "" : "+", part[i].lo, part[i].hi);
  }
  if (!std::is_sorted(cut.axes.begin(), cut.axes.end())) text += " (inner axis first)";
  return text;
}

// Row-major in half of all trials, as convolutions leave maps (channels last) in a quarter, else any order.
Dims draw_order(Random& random, int dims) {
  const bool row_major = random.chance(50);
  const bool channels_last = random.chance(50);
  Dims order;
  if (row_major || dims < 2) return order;
  for (int d = 0; d < dims; ++d)
    if (d != 1) order.push_back(d);
  if (channels_last) {
    order.push_back(1);
  } else {
    order.insert(1, 1);
    for (int d = dims - 1; d > 0; --d) std::swap(order[d], order[static_cast<int>(random.integer(0, d))]);
  }
  return std::is_sorted(order.begin(), order.end()) ? Dims() : order;
}

// From numbers of their own, so that splits do not depend on them.
void draw_orders(const Case& c, Trial& trial) {
  for (auto& [name, plan] : trial.tensors) {
    Random random(trial.seed, c.name + "/" + trial.id + "/" + name, 0);
    plan.order = draw_order(random, static_cast<int>(plan.cuts.size()));
  }
}

// Running statistics, which a norm moves in place and refuses as sums.
bool is_moved(const Case& c, const std::string& leaf) {
  for (const Step& step : c.program) {
    if (step.op != "batch_norm" && step.op != "instance_norm") continue;
    for (std::size_t i = 3; i < step.in.size(); ++i)  // after input, weight and bias
      if (step.in[i] == leaf) return true;
  }
  return false;
}

// A sum keeps no sign of 0.
bool may_be_owed(const Case& c, const std::string& name, const Array& a) {
  if (!name.starts_with("in.") || !is_floating(a.dtype()) || is_moved(c, name.substr(3))) return false;
  const std::vector<double> values = a.to_vector();
  return std::none_of(values.begin(), values.end(), [](double v) { return v == 0 && std::signbit(v); });
}

// One axis owes the sum, whatever it did before; what it cut is cut by the other one alone, if that did too.
void make_owed(TensorPlan& plan, int axis, const std::vector<int>& mesh, const Dims& sizes) {
  const Placement before = std::exchange(plan.placements[static_cast<std::size_t>(axis)], Partial());
  if (!before.is_shard()) return;
  std::optional<DimCut>& cut = plan.cuts[static_cast<std::size_t>(before.dim)];
  cut.reset();
  const std::vector<int> axes = axes_on(plan.placements, before.dim);
  if (axes.empty()) return;
  cut = DimCut{axes, {}};
  for (const Interval i : default_partition(sizes[before.dim], parts_of(axes, mesh)))
    cut->parts.push_back({i});
}

// From numbers of their own too.
void draw_sums(const Case& c, Trial& trial) {
  for (auto& [name, plan] : trial.tensors) {
    Random random(trial.seed, c.name + "/" + trial.id + "/" + name + "/sum", 0);
    const Array* array = c.leaf(name.substr(name.find('.') + 1));
    if (plan.plain || !random.chance(20) || array == nullptr || !may_be_owed(c, name, *array)) continue;
    const auto last = static_cast<std::int64_t>(trial.mesh.size()) - 1;
    make_owed(plan, static_cast<int>(random.integer(0, last)), trial.mesh, array->sizes());
    plan.terms = static_cast<std::uint64_t>(random.integer(0, INT64_MAX - 1));
  }
}

template <class F>
void for_each_part(const Case& c, F&& f) {
  for (const auto& [name, array] : c.inputs) f("in." + name, array);
  for (const auto& [name, array] : c.params) f("param." + name, array);
  for (const auto& [name, array] : c.cotangents) f("cot." + name, array);
  for (const auto& [name, array] : c.directions) f("v." + name, array);
}

}  // namespace

std::string mesh_str(const std::vector<int>& mesh) { return fmt::format("{}", fmt::join(mesh, "x")); }

std::string TensorPlan::str() const {
  std::string text = plain ? "plain" : "";
  for (const Placement& p : placements) {
    if (plain) break;
    text += text.empty() ? "" : ",";
    text += p.is_shard() ? fmt::format("S{}", p.dim) : p.is_partial() ? "P" : "R";
  }
  for (std::size_t d = 0; d < cuts.size(); ++d)
    if (cuts[d] && !plain) text += fmt::format(" dim {} cut {}", d, cut_str(*cuts[d]));
  if (!order.empty()) text += " order " + order.str();
  return text;
}

std::string Trial::str() const {
  std::string text = "mesh " + mesh_str(mesh);
  for (const auto& [name, plan] : tensors) text += fmt::format("; {} {}", name, plan.str());
  return text;
}

Trial draw_trial(const Case& c, const TrialChoice& choice, int number) {
  Random random(choice.seed, c.name, static_cast<std::uint64_t>(number));
  Trial trial;
  trial.id = std::to_string(number);
  trial.seed = choice.seed;
  trial.mesh = draw_mesh(random, choice.ranks);
  if (!choice.mesh.empty()) trial.mesh = choice.mesh;
  const CutStyle style = style_of(c, choice, number);
  const std::int64_t params = random.integer(0, 9);  // 0-5 plain, 6-7 replicated, 8-9 sharded
  for_each_part(c, [&](const std::string& name, const Array& array) {
    TensorPlan plan = draw_plan(random, trial.mesh, array.sizes(), style);
    const bool param = name.starts_with("param.");
    if (param && params < 8) {
      plan = replicated_plan(trial.mesh, array.sizes());
      plan.plain = params < 6;
    }
    if (name.starts_with("in.") && random.chance(5)) plan.plain = true;
    trial.tensors[name] = std::move(plan);
  });
  draw_sums(c, trial);
  draw_orders(c, trial);
  return trial;
}

Trial limit_trial(const Case& c, const TrialChoice& choice, int number) {
  const Limit& limit = c.limits[static_cast<std::size_t>(number)];
  Trial trial;
  trial.id = fmt::format("limit{}", number);
  trial.seed = choice.seed;
  trial.mesh = limit.mesh;
  trial.max_forward_bytes = limit.max_forward_bytes;
  Random random(choice.seed, c.name + "/limit", static_cast<std::uint64_t>(number));
  for_each_part(c, [&](const std::string& name, const Array& array) {
    const bool leaf = name.starts_with("in.") || name.starts_with("param.");
    trial.tensors[name] = leaf ? plan_of_limit(limit, name.substr(name.find('.') + 1), array.sizes())
                               : draw_plan(random, trial.mesh, array.sizes(), CutStyle::Mixed);
  });
  draw_orders(c, trial);
  return trial;
}

}  // namespace tessera::verify
