#include "verify/trial_run.h"

#include <cmath>

#include <fmt/format.h>

#include "autograd/node.h"
#include "runtime/allocator.h"
#include "runtime/error.h"
#include "train/scatter.h"
#include "verify/compare.h"
#include "verify/programs.h"
#include "verify/random.h"

namespace tessera::verify {
namespace {

using TensorMap = std::map<std::string, Tensor>;

// Whether lengths alone say it, as train::scatter takes them: one interval per rank, in order.
bool is_plain_cut(const DimCut& cut) {
  std::int64_t at = 0;
  for (const Intervals& part : cut.parts) {
    if (part.size() != 1 || part[0].lo != at) return false;
    at = part[0].hi;
  }
  return std::is_sorted(cut.axes.begin(), cut.axes.end());
}

// The part that this rank holds, taken without the library's exchanges.
Array local_part(const Array& whole, const ShardSpec& spec) {
  Array local = whole;
  for (int d = 0; d < spec.dim(); ++d) {
    Dims sizes = local.sizes();
    sizes[d] = spec.local_sizes()[d];
    Array joined = Array::empty(sizes, whole.dtype(), whole.device());
    std::int64_t at = 0;
    for (const Interval i : spec.intervals(d)) {
      joined.slice(d, at, i.length()).copy_(local.slice(d, i.lo, i.length()));
      at += i.length();
    }
    local = joined;
  }
  return local;
}

// The same values, lying in memory in the order of dims given.
Array lying(const Array& a, const Dims& order) {
  if (order.empty()) return a;
  Dims back = order;
  for (int i = 0; i < order.size(); ++i) back[static_cast<int>(order[i])] = i;
  return a.permute(order).clone().permute(back);
}

// `terms` that make v exactly in float32, in whatever order they are added: multiples of its last digit, all
// sums of which stay below 2^24 of them. Some are of the other sign, or nothing.
void split_value(Random& random, double v, std::vector<double>& terms) {
  std::fill(terms.begin(), terms.end(), 0.0);
  const auto last = static_cast<std::int64_t>(terms.size()) - 1;
  const auto any = [&]() -> double& { return terms[static_cast<std::size_t>(random.integer(0, last))]; };
  if (!std::isfinite(v)) {
    any() = v;
    return;
  }
  const double digit = std::ldexp(1.0, std::max(v == 0 ? 0 : std::ilogb(v), -126) - 23);
  const auto digits = static_cast<std::int64_t>(std::abs(v) / digit);
  const std::int64_t first = random.integer(0, digits);
  any() += std::copysign(static_cast<double>(first), v) * digit;
  any() += std::copysign(static_cast<double>(digits - first), v) * digit;
  const std::int64_t room = (std::int64_t{1} << 24) - digits;
  const double extra = static_cast<double>(random.integer(0, room)) * digit;
  any() += extra;
  any() -= extra;
}

// This rank's term of a tensor that one axis owes, whole.
Array term_of(const Array& whole, const TensorPlan& plan, const DeviceMesh& mesh) {
  std::size_t axis = 0;
  while (!plan.placements[axis].is_partial()) ++axis;
  std::vector<double> terms(static_cast<std::size_t>(mesh.size(static_cast<int>(axis))));
  const auto own = static_cast<std::size_t>(mesh.coordinate(static_cast<int>(axis)));
  std::vector<double> values = whole.to_vector();
  Random random(plan.terms, "terms", 0);
  for (double& v : values) {
    split_value(random, v, terms);
    v = terms[own];
  }
  return Array::from(values, whole.sizes(), whole.dtype()).to(whole.device());
}

Tensor place_as_it_lies(const Array& whole, const TensorPlan& plan, const DeviceMesh& mesh) {
  if (plan.plain) return Tensor(whole.clone());
  const SpecPtr spec = ShardSpec::make(mesh, plan.placements, whole.sizes(), plan.cuts);
  if (spec->has_partial()) return Tensor(local_part(term_of(whole, plan, mesh), *spec), spec);
  std::vector<std::vector<std::int64_t>> lengths(plan.placements.size());
  for (const auto& cut : plan.cuts) {
    if (!cut) continue;
    if (!is_plain_cut(*cut)) return ShardTensor::from_local(local_part(whole, *spec), spec);
    for (const Intervals& part : cut->parts)
      lengths[static_cast<std::size_t>(cut->axes[0])].push_back(part[0].length());
  }
  const Array here = mesh.rank() == plan.source ? whole : Array();
  Tensor t = train::scatter(here, plan.source, mesh, plan.placements, lengths);
  TS_CHECK(t.spec() == spec, "tessera-verify", "scatter gave {}, asked for {}", t.spec()->str(), spec->str());
  return t;
}

Tensor place(const Array& whole, const TensorPlan& plan, const DeviceMesh& mesh) {
  const Tensor t = place_as_it_lies(whole, plan, mesh);
  const Array local = lying(t.local(), plan.order);
  return t.is_sharded() ? Tensor(local, t.spec()) : Tensor(local);
}

class Running {
 public:
  explicit Running(const TrialSetup& setup) : s_(setup), c_(*setup.test) {}

  void run(TrialOutcome& outcome) {
    place_leaves();
    const Recorder::Totals start = recorder().totals();
    TensorMap values = leaves_;
    run_program(c_, values);
    const Recorder::Totals middle = recorder().totals();
    outcome.bytes_forward = middle.bytes - start.bytes;
    outcome.messages_forward = middle.messages - start.messages;
    for (const auto& [name, want] : c_.outputs) outputs_[name] = values.at(name);
    values.clear();
    const Recorder::Totals before_backward = recorder().totals();
    backward();
    outcome.bytes_backward = recorder().totals().bytes - before_backward.bytes - placing_.bytes;
    outcome.messages_backward = recorder().totals().messages - before_backward.messages - placing_.messages;
    outcome.fault = compare_all();
  }

 private:
  Recorder& recorder() const { return s_.mesh.comm().recorder(); }
  Array converted(const Array& a) const {
    return (is_floating(a.dtype()) ? a.to(s_.dtype) : a).to(s_.device);
  }
  Tensor placed(const std::string& name, const Array& a) const {
    // A copy: an operation may write to it.
    return place(converted(a).clone(), s_.trial->tensors.at(name), s_.mesh);
  }

  void place_leaves() {
    for (const auto& [name, array] : c_.inputs) leaves_[name] = placed("in." + name, array);
    for (const auto& [name, array] : c_.params) leaves_[name] = placed("param." + name, array);
    for (auto& [name, leaf] : leaves_)
      if (c_.needs_gradient(name)) leaf.set_requires_grad();
  }

  // A plain result takes a plain cotangent: it has no mesh.
  Tensor direction(const std::string& name, const Array& a, const Tensor& like) {
    const Recorder::Totals before = recorder().totals();
    TensorPlan plan = s_.trial->tensors.at(name);
    plan.plain = !like.is_sharded();
    const Tensor t = place(converted(a).to(like.dtype()), plan, s_.mesh);
    placing_.bytes += recorder().totals().bytes - before.bytes;
    placing_.messages += recorder().totals().messages - before.messages;
    return t;
  }

  void backward() {
    Tensors outputs;
    Tensors cotangents;
    for (const auto& [name, cot] : c_.cotangents) {
      const Tensor& y = outputs_.at(name);
      if (!y.requires_grad()) continue;
      outputs.push_back(y);
      cotangents.push_back(direction("cot." + name, cot, y));
    }
    if (outputs.empty() || c_.gradients.empty()) return;
    if (c_.has_second_derivatives()) {
      second_derivatives(outputs, cotangents);
      return;
    }
    run_backward(outputs, cotangents, {}, {});
    for (const auto& [name, want] : c_.gradients) gradients_[name] = leaf_gradient(name);
  }

  Tensor leaf_gradient(const std::string& name) const {
    const Tensor& leaf = leaves_.at(name);
    Tensor g = leaf.grad();
    const auto text = [](const SpecPtr& spec) { return spec ? spec->str() : "plain"; };
    // Every term's gradient is the whole one.
    const SpecPtr wanted = leaf.is_sharded() ? without_partial(*leaf.spec()) : nullptr;
    if (g.defined() && g.spec() != wanted)
      TS_FAIL(Internal, "tessera-verify", "grad.{} is {}, its leaf {}", name, text(g.spec()),
              text(leaf.spec()));
    return g;
  }

  // The leaves of `names` that exist, in order.
  Tensors leaves_of(const ArrayMap& names) const {
    Tensors list;
    for (const auto& [name, array] : names) list.push_back(leaves_.at(name));
    return list;
  }

  void second_derivatives(const Tensors& outputs, const Tensors& cotangents) {
    const Tensors first = grad(outputs, leaves_of(c_.gradients), cotangents, {.create_graph = true});
    Tensors graded;
    Tensors directions;
    std::size_t at = 0;
    for (const auto& [name, want] : c_.gradients) {
      const Tensor& g = first[at++];
      gradients_[name] = g;
      const auto v = c_.directions.find(name);
      if (v == c_.directions.end() || !g.defined() || !g.requires_grad()) continue;
      graded.push_back(g);
      directions.push_back(direction("v." + name, v->second, g));
    }
    if (graded.empty()) return;
    const Tensors second = grad(graded, leaves_of(c_.second_gradients), directions);
    at = 0;
    for (const auto& [name, want] : c_.second_gradients) second_[name] = second[at++];
  }

  std::string compare_all() {
    std::string faults;
    const NoGrad guard;
    compare("out.", c_.outputs, outputs_, faults);
    compare("grad.", c_.gradients, gradients_, faults);
    compare("grad2.", c_.second_gradients, second_, faults);
    return faults;
  }

  // Every tensor is gathered whatever the ones before gave: that is collective. The first fault is told.
  void compare(const std::string& prefix, const ArrayMap& expected, const TensorMap& found,
               std::string& faults) {
    for (const auto& [name, want] : expected) {
      const auto got = found.find(name);
      const bool present = got != found.end() && got->second.defined();
      // A gradient that nothing reaches is zero.
      const Array whole =
          present ? got->second.full_tensor().local().to(Device::Cpu) : Array::zeros(want.sizes(), s_.dtype);
      // What is stored wider than the rest is what the case's own `dtype` makes of it.
      const DType dtype = want.dtype() == DType::F64 ? DType::F64 : s_.dtype;
      if (present && is_floating(want.dtype()) && whole.dtype() != dtype && faults.empty())
        faults = fmt::format("{}{} is {}, want {}", prefix, name, name_of(whole.dtype()), name_of(dtype));
      const double stated = c_.allowed_error(prefix + name);
      const double allowed = s_.dtype == DType::F64 ? allowed_in_f64(want, stated) : stated;
      const std::string fault = difference(whole, want, allowed);
      if (!fault.empty() && faults.empty()) {
        faults = fmt::format("{}{} {}", prefix, name, fault);
        if (!present) faults += " (no gradient came)";
      }
    }
  }

  const TrialSetup& s_;
  const Case& c_;
  TensorMap leaves_;
  TensorMap outputs_;
  TensorMap gradients_;
  TensorMap second_;
  Recorder::Totals placing_;  // of cotangents: not part of the backward pass
};

}  // namespace

TrialOutcome run_trial(const TrialSetup& setup) {
  TrialOutcome outcome;
  reset_peak(setup.device);
  const std::int64_t before = allocator_stats(setup.device).live_bytes;
  try {
    Running(setup).run(outcome);
  } catch (const Error& e) {
    outcome.fault = e.message();
    outcome.refused = true;
  } catch (const std::exception& e) {
    outcome.fault = fmt::format("exception: {}", e.what());
    outcome.refused = true;
  }
  outcome.peak_live_bytes = allocator_stats(setup.device).peak_live_bytes - before;
  return outcome;
}

}  // namespace tessera::verify
