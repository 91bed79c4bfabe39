// slice and split, and their counterparts that put parts in place: every element stays where it is.
#include "mesh/intervals.h"
#include "ops/memory_order.h"
#include "ops/op.h"
#include "ops/random/random.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/replace.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"
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

// A cut of x whose range is cut as given.
DimCut stretched(const DimCut& cut, const Range& r, std::int64_t n) {
  DimCut wide = cut;
  for (Intervals& part : wide.parts)
    for (Interval& i : part)
      if (!i.empty())
        i = {i.lo == 0 ? 0 : r.start + i.lo * r.step, i.hi == r.length ? n : r.start + i.hi * r.step};
  return wide;
}

// x cut as src is wherever nothing cuts or owes x: that moves nothing.
SpecPtr cut_beside(const ShardSpec& x, const ShardSpec& src, const Range& r) {
  Placements placements = x.placements();
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(x.dim()));
  for (int d = 0; d < x.dim(); ++d) {
    std::optional<DimCut>& cut = cuts[static_cast<std::size_t>(d)];
    if (x.cut(d)) cut = *x.cut(d);
    if (x.cut(d) || !src.cut(d) || src.sizes()[d] == 0) continue;
    const std::vector<int>& axes = src.cut(d)->axes;
    const auto is_free = [&](int a) { return x.placement(a).is_replicate(); };
    if (!std::all_of(axes.begin(), axes.end(), is_free)) continue;
    cut = d == r.dim ? stretched(*src.cut(d), r, x.sizes()[d]) : *src.cut(d);
    for (int a : axes) placements[static_cast<std::size_t>(a)] = Shard(d);
  }
  return ShardSpec::make(x.mesh(), placements, x.sizes(), std::move(cuts));
}

// The result lies as x does, sums that are owed included, and src is brought to what it replaces; where x is
// whole, both lie as src does.
Strategy replace_plan(const std::vector<SpecPtr>& in, const Range& r) {
  SpecPtr x = keeping_sums(*in[0]);
  if (in.size() > 1) x = cut_beside(*x, *in[1], r);
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
  c.passes_on = true;
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
    at = checked_sum(op.name, at, length);
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
  c.passes_on = true;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

}  // namespace tessera
