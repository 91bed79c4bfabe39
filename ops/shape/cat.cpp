// cat: every element stays where it is.
#include "ops/elementwise/elementwise.h"
#include "ops/memory_order.h"
#include "ops/op.h"
#include "ops/shape/join_runs.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"
#include "runtime/threads.h"

namespace tessera {
namespace {

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

// Elements of the result that are written before the next ones: they stay in cache while every input adds its
// share, and each thread has enough of them.
std::int64_t piece_elements() {
  const std::int64_t threads = thread_count();
  return threads == 1 ? kParallelElements : 4 * threads * kParallelElements;
}

// Joins the arrays along `dim`, in pieces along the outermost dims where they do not lie one after the other.
void join(const Array& out, const std::vector<Array>& in, int dim) {
  const Dims order = memory_order(out);
  if (out.device() == Device::Cpu && cpu::join_runs(out, in, dim, order)) return;
  const auto* outer = std::find_if(order.begin(), order.end(),
                                   [&](std::int64_t d) { return out.size(static_cast<int>(d)) > 1; });
  if (out.numel() > piece_elements() && out.device() == Device::Cpu && outer != order.end() &&
      *outer != dim) {
    const auto cut = static_cast<int>(*outer);
    const std::int64_t n = out.size(cut);
    const std::int64_t step = std::max<std::int64_t>(1, piece_elements() * n / out.numel());
    for (std::int64_t lo = 0; lo < n; lo += step) {
      const std::int64_t count = std::min(step, n - lo);
      std::vector<Array> parts;
      parts.reserve(in.size());
      for (const Array& a : in) parts.push_back(a.slice(cut, lo, count));
      join(out.slice(cut, lo, count), parts, dim);
    }
    return;
  }
  std::int64_t at = 0;
  for (const Array& a : in) {
    copy_strided(out.slice(dim, at, a.size(dim)), a);
    at += a.size(dim);
  }
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
    bool fits = t.defined() && t.dim() == tensors[0].dim();
    for (int d = 0; fits && d < t.dim(); ++d) fits = d == dim || t.sizes()[d] == tensors[0].sizes()[d];
    TS_CHECK(fits, "cat", "all tensors must agree in every dim but {}, given {} and {}", dim,
             given_str(tensors[0]), given_str(t));
  }
}

// All become what they promote to.
void take_common_dtype(const char* op, Tensors& tensors) {
  DType common = tensors[0].dtype();
  bool mixed = false;
  for (const Tensor& t : tensors)
    if (t.dtype() != common) {
      common = promote(common, t.dtype());
      mixed = true;
    }
  if (!mixed) return;
  for (const Tensor& t : tensors) check_together(op, {&tensors[0], &t});  // before a cast sends anything
  for (Tensor& t : tensors) t = to(t, common);
}

}  // namespace

Tensor cat(const Tensors& given, std::int64_t dim_given) {
  static const OpDef op{"cat"};
  const auto model = std::find_if(given.begin(), given.end(), [](const Tensor& t) { return !is_nothing(t); });
  const Tensor first = model != given.end() ? *model : given.empty() ? Tensor() : given[0];
  TS_CHECK(first.defined() && first.dim() > 0, op.name, "needs at least one tensor, with dims, given {}",
           given.empty() ? "none" : given_str(first));
  const int dim = wrap_dim(op.name, dim_given, first.dim());
  Tensors tensors = with_nothing_shaped(given, first.sizes(), dim);
  check_cat(tensors, dim);
  take_common_dtype(op.name, tensors);
  Dims sizes = tensors[0].sizes();
  sizes[dim] = 0;
  for (const Tensor& t : tensors) sizes[dim] += t.sizes()[dim];
  auto local = [&](LocalCall& l) {
    const auto smaller = [](const Array& a, const Array& b) { return a.numel() < b.numel(); };
    const Array out = empty_like(*std::max_element(l.in.begin(), l.in.end(), smaller), l.out_sizes(0, sizes));
    join(out, {l.in.begin(), l.in.end()}, dim);
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
        if (c.needs(i)) grads[i] = slice(g[0], dim, at, at + lengths[i]);
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
  c.passes_on = true;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
