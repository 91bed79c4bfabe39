// slice, split and cat: every element stays where it is.
#include "mesh/intervals.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/memory_order.h"
#include "ops/op.h"
#include "ops/random/random.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/replace.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

struct Range {
  int dim = 0;
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t length = 0;  // number of elements taken
};

// Positions of the result that fall into one interval of the source.
Interval taken(const Range& r, Interval i) {
  const auto first_from = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(ceil_div(at - r.start, r.step), 0, r.length);
  };
  return {first_from(i.lo), first_from(i.hi)};
}

SpecPtr sliced_spec(const ShardSpec& x, const Range& r) {
  std::optional<DimCut> cut;
  if (x.cut(r.dim)) {
    cut.emplace();
    cut->axes = x.cut(r.dim)->axes;
    for (const Intervals& part : x.cut(r.dim)->parts) {
      Intervals out;
      for (Interval i : part) out.push_back(taken(r, i));
      cut->parts.push_back(std::move(out));
    }
  }
  return with_cut(x, r.dim, r.length, cut);
}

std::vector<LocalRun> runs(const Intervals& own, const Range& r) {
  std::vector<LocalRun> list;
  std::int64_t base = 0;
  std::int64_t at = 0;
  for (Interval i : own) {
    const Interval t = taken(r, i);
    if (!t.empty()) {
      list.push_back({base + r.start + t.lo * r.step - i.lo, at, t.length()});
      at += t.length();
    }
    base += i.length();
  }
  return list;
}

Intervals own_intervals(const ShardSpec* spec, int dim, std::int64_t n) {
  return spec != nullptr ? spec->intervals(dim) : Intervals{{0, n}};
}

Array slice_local(const Array& x, const ShardSpec* spec, std::int64_t n, const Range& r) {
  const std::vector<LocalRun> list = runs(own_intervals(spec, r.dim, n), r);
  if (list.empty()) return x.slice(r.dim, 0, 0);
  if (list.size() == 1) return x.slice(r.dim, list[0].from, list[0].count, r.step);
  Dims sizes = x.sizes();
  sizes[r.dim] = list.back().to + list.back().count;
  Array out = empty_like(x, sizes);
  for (const LocalRun& run : list)
    copy_strided(out.slice(r.dim, run.to, run.count), x.slice(r.dim, run.from, run.count, r.step));
  return out;
}

// Taking a range; the adjoint is zeros but for the range.
struct SliceMap : ElementMap {
  Range r;
  static const OpDef& op() {
    static const OpDef def{"slice"};
    return def;
  }
  static const OpDef& adjoint_op() {
    static const OpDef def{"slice_backward"};
    return def;
  }
  Hash hash() const { return Hash().add(std::int64_t{r.dim}).add(r.start).add(r.step).add(r.length); }
  SpecPtr placed(const ShardSpec& x) const { return sliced_spec(x, r); }
  Array apply(const Array& x, const MapPlaces& p) const { return slice_local(x, p.from, from[r.dim], r); }
  Array adjoint(const Array& dy, const MapPlaces& p) const {
    const Array out = full_like(dy, p.from != nullptr ? p.from->local_sizes() : from, 0.0);
    for (const LocalRun& run : runs(own_intervals(p.from, r.dim, from[r.dim]), r))
      copy_strided(out.slice(r.dim, run.from, run.count, r.step), dy.slice(r.dim, run.to, run.count));
    return out;
  }
};

Tensor slice_range(const Tensor& x, const Range& r) {
  Dims sizes = x.sizes();
  sizes[r.dim] = r.length;
  return apply_map(SliceMap{{x.sizes(), sizes}, r}, x);
}

struct Bounds {
  std::int64_t start = 0;
  std::int64_t end = INT64_MAX;
  std::int64_t step = 1;
};

// [start, end) in steps, as it falls into a dim.
Range range_of(const char* op, const Tensor& x, std::int64_t dim, const Bounds& bounds) {
  TS_CHECK(x.defined(), op, "the input is undefined");
  TS_CHECK(x.dim() > 0, op, "needs a tensor with dims, given {}", given_str(x));
  TS_CHECK(bounds.step >= 1, op, "step {} given, at least 1 is needed", bounds.step);
  const int d = wrap_dim(op, dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  auto bound = [n](std::int64_t v) { return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n); };
  const std::int64_t lo = bound(bounds.start);
  const std::int64_t hi = std::max(lo, bound(bounds.end));
  return {d, lo, bounds.step, (hi - lo + bounds.step - 1) / bounds.step};
}

// The result lies as x does, sums that are owed included, and src is brought to what it replaces.
Strategy replace_plan(const std::vector<SpecPtr>& in, const Range& r) {
  Placements placements = in[0]->placements();
  for (Placement& p : placements)
    if (p.is_partial() && p.op != ReduceOp::Sum) p = Replicate();
  const SpecPtr x = with_placements(*in[0], placements);
  Strategy s{{x}, {x}, 0};
  if (in.size() > 1) s.inputs.push_back(sliced_spec(*x, r));
  return s;
}

// The first of `inputs`, x, with the range replaced by the second, src, or by zeros where there is none.
Tensor replaced(const OpDef& op, std::span<const Tensor> inputs, const Range& r) {
  const Dims& sizes = inputs[0].sizes();
  auto local = [&](LocalCall& l) {
    l.out[0] = empty_like(l.in[0], l.in[0].sizes());
    copy_strided(l.out[0], l.in[0]);
    for (const LocalRun& run : runs(own_intervals(l.in_spec(0), r.dim, sizes[r.dim]), r)) {
      const Array part = l.out[0].slice(r.dim, run.from, run.count, r.step);
      if (l.in.size() > 1) {
        copy_strided(part, l.in[1].slice(r.dim, run.to, run.count));
      } else {
        part.zero_();
      }
    }
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return replace_plan(in, r); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [r, n = in.size()](const BackwardContext& c, const Tensors& g) {
      static const OpDef without_part{"slice_scatter_backward"};
      Tensors grads(n);
      if (c.needs(0)) grads[0] = replaced(without_part, {&g[0], 1}, r);
      if (n > 1 && c.needs(1)) grads[1] = slice_range(g[0], r);
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(std::int64_t{r.dim}).add(r.start).add(r.step).add(r.length);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// x with the range replaced: src goes where x's elements are, which stay.
Tensor with_range(const OpDef& op, const Tensor& x, const Tensor& src, const Range& r) {
  Dims part = x.sizes();
  part[r.dim] = r.length;
  TS_CHECK(src.sizes() == part && src.dtype() == x.dtype(), op.name,
           "src must be {} {}, as what it replaces, given {} {}", name_of(x.dtype()), part.str(),
           name_of(src.dtype()), src.sizes().str());
  const std::array<Tensor, 2> both{x, src};
  return replaced(op, both, r);
}

}  // namespace

Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  const Range r = range_of("slice", x, dim, {start, end, step});
  return r.length == x.sizes()[r.dim] && step == 1 ? x : slice_range(x, r);
}

Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t start,
                     std::int64_t end, std::int64_t step) {
  static const OpDef op{"slice_scatter"};
  const Range r = range_of(op.name, x, dim, {start, end, step});
  TS_CHECK(src.defined(), op.name, "src is undefined");
  return with_range(op, x, src, r);
}

Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t index) {
  static const OpDef op{"select_scatter"};
  TS_CHECK(x.defined() && x.dim() > 0, op.name, "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim(op.name, dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  TS_CHECK(index >= -n && index < n, op.name, "there is no element {} in dim {} of size {}", index, d, n);
  Dims part = x.sizes();
  part.erase(d);
  TS_CHECK(
      src.defined() && src.sizes() == part && src.dtype() == x.dtype(), op.name,
      "src must be {} {}, as what it replaces, given {}", name_of(x.dtype()), part.str(),
      src.defined() ? fmt::format("{} {}", name_of(src.dtype()), src.sizes().str()) : "an undefined one");
  return with_range(op, x, unsqueeze(src, d), {d, index < 0 ? index + n : index, 1, 1});
}

Tensors split(const Tensor& x, const std::vector<std::int64_t>& lengths, std::int64_t dim) {
  static const OpDef op{"split"};
  TS_CHECK(x.defined() && x.dim() > 0, op.name, "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim(op.name, dim, x.dim());
  std::vector<Range> ranges;
  std::vector<Dims> sizes;
  std::int64_t at = 0;
  Hash hash;
  for (std::int64_t length : lengths) {
    TS_CHECK(length >= 0, op.name, "sizes must not be negative, given {}", length);
    hash.add(length);
    ranges.push_back({d, at, 1, length});
    sizes.push_back(x.sizes());
    sizes.back()[d] = length;
    at += length;
  }
  TS_CHECK(at == x.sizes()[d], op.name, "the {} sizes sum to {}, dim {} has size {}", lengths.size(), at, d,
           x.sizes()[d]);
  auto local = [&](LocalCall& l) {
    for (std::size_t i = 0; i < ranges.size(); ++i)
      l.out[i] = slice_local(l.in[0], l.in_spec(0), x.sizes()[d], ranges[i]);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    Strategy s{{in[0]}, {}, 0};
    for (const Range& r : ranges) s.outputs.push_back(sliced_spec(*in[0], r));
    return s;
  };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor> out) -> GradFunction {
    Tensors models;
    for (const Tensor& o : out) models.push_back(o.detach());
    return [models, d](const BackwardContext&, const Tensors& g) {
      Tensors parts = g;
      for (std::size_t i = 0; i < parts.size(); ++i)
        if (!parts[i].defined()) parts[i] = zeros_like(models[i]);
      return Tensors{cat(parts, d)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = hash.add(std::int64_t{d});
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

namespace {

// The default partition over the same axes, in the same nesting order.
DimCut even_cut(const DimCut& like, std::int64_t n) {
  DimCut cut{like.axes, {}};
  for (Interval i : default_partition(n, static_cast<int>(like.parts.size()))) cut.parts.push_back({i});
  return cut;
}

// Every input takes the placements of the first one that is cut; along `dim` all that any axis of it cuts are
// cut. Along an axis that cuts none a sum may stay owed: what is whole counts on one rank.
Strategy cat_plan(const std::vector<SpecPtr>& in, int dim, std::int64_t total) {
  const ShardSpec* model = in[0].get();
  for (const SpecPtr& s : in)
    if (s->cut(dim) || (s->is_cut() && !model->is_cut())) {
      model = s.get();
      if (s->cut(dim)) break;
    }
  Placements placements = model->placements();
  for (std::size_t a = 0; a < placements.size(); ++a) {
    if (placements[a].is_shard()) continue;
    const auto owes = [a](const SpecPtr& s) { return s->placements()[a] == Partial(); };
    const auto fits = [&](const SpecPtr& s) { return owes(s) || s->placements()[a].is_replicate(); };
    const bool owed = std::any_of(in.begin(), in.end(), owes) && std::all_of(in.begin(), in.end(), fits);
    placements[a] = owed ? Partial() : Replicate();
  }
  Strategy strategy;
  DimCut joined;
  if (model->cut(dim)) {
    joined.axes = model->cut(dim)->axes;
    joined.parts.resize(model->cut(dim)->parts.size());
  }
  std::int64_t base = 0;
  for (const SpecPtr& s : in) {
    std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(s->dim()));
    for (int d = 0; d < s->dim(); ++d)
      if (d != dim && model->cut(d)) cuts[static_cast<std::size_t>(d)] = *model->cut(d);
    if (model->cut(dim)) {
      const bool alike = s->cut(dim) && s->cut(dim)->axes == joined.axes;
      cuts[static_cast<std::size_t>(dim)] = alike ? *s->cut(dim) : even_cut(joined, s->sizes()[dim]);
    }
    strategy.inputs.push_back(ShardSpec::make(s->mesh(), placements, s->sizes(), std::move(cuts)));
    if (const CutPtr& cut = strategy.inputs.back()->cut(dim)) {
      for (std::size_t p = 0; p < cut->parts.size(); ++p)
        for (Interval i : cut->parts[p]) joined.parts[p].push_back({i.lo + base, i.hi + base});
    }
    base += s->sizes()[dim];
  }
  strategy.outputs = {with_cut(*strategy.inputs[0], dim, total,
                               model->cut(dim) ? std::optional<DimCut>(joined) : std::nullopt)};
  return strategy;
}

// A vector of no elements fits whatever it is joined to, as in PyTorch: a list that starts empty and grows.
bool is_nothing(const Tensor& t) { return t.defined() && t.sizes() == Dims{0}; }

Tensors with_nothing_shaped(Tensors tensors, Dims sizes, int dim) {
  if (sizes.size() == 1) return tensors;
  sizes[dim] = 0;
  for (Tensor& t : tensors)
    if (is_nothing(t)) t = reshape(t, sizes);
  return tensors;
}

void check_cat(const Tensors& tensors, int dim) {
  for (const Tensor& t : tensors) {
    bool fits = t.defined() && t.dim() == tensors[0].dim() && t.dtype() == tensors[0].dtype();
    for (int d = 0; fits && d < t.dim(); ++d) fits = d == dim || t.sizes()[d] == tensors[0].sizes()[d];
    TS_CHECK(fits, "cat", "all tensors must agree in dtype and in every dim but {}, given {} and {}", dim,
             given_str(tensors[0]), given_str(t));
  }
}

}  // namespace

Tensor cat(const Tensors& given, std::int64_t dim_given) {
  static const OpDef op{"cat"};
  const auto model = std::find_if(given.begin(), given.end(), [](const Tensor& t) { return !is_nothing(t); });
  const Tensor first = model != given.end() ? *model : given.empty() ? Tensor() : given[0];
  TS_CHECK(first.defined() && first.dim() > 0, op.name, "needs at least one tensor, with dims, given {}",
           given.empty() ? "none" : given_str(first));
  const int dim = wrap_dim(op.name, dim_given, first.dim());
  const Tensors tensors = with_nothing_shaped(given, first.sizes(), dim);
  check_cat(tensors, dim);
  Dims sizes = tensors[0].sizes();
  sizes[dim] = 0;
  for (const Tensor& t : tensors) sizes[dim] += t.sizes()[dim];
  auto local = [&](LocalCall& l) {
    const auto smaller = [](const Array& a, const Array& b) { return a.numel() < b.numel(); };
    const Array out = empty_like(*std::max_element(l.in.begin(), l.in.end(), smaller), l.out_sizes(0, sizes));
    std::int64_t at = 0;
    for (const Array& a : l.in) {
      copy_strided(out.slice(dim, at, a.size(dim)), a);
      at += a.size(dim);
    }
    l.out[0] = out;
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return cat_plan(in, dim, sizes[dim]); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    std::vector<std::int64_t> lengths;
    for (const Tensor& t : in) lengths.push_back(t.sizes()[dim]);
    return [lengths, dim](const BackwardContext& c, const Tensors& g) {
      Tensors grads(lengths.size());
      std::int64_t at = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        if (c.needs(i)) grads[i] = slice_range(g[0], {dim, at, 1, lengths[i]});
        at += lengths[i];
      }
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = tensors;
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(std::int64_t{dim});
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
