#include "ops/indexing/order.h"

#include "ops/elementwise/elementwise.h"
#include "ops/indexing/sample_sort.h"
#include "ops/indexing/take.h"
#include "ops/random/random.h"
#include "ops/reduce/groups.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

using Pair = std::pair<Tensor, Tensor>;

// All dims in order, but `dim` last.
Dims order_with_last(int dims, int dim) {
  Dims order;
  for (int d = 0; d < dims; ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  return order;
}

Array as_rows(const Array& x, int dim) {
  const std::int64_t n = x.size(dim);
  Dims others = x.sizes();
  others.erase(dim);
  return x.permute(order_with_last(x.dim(), dim)).contiguous().reshape({numel_of(others), n});
}

// [rows, k] with the dim back where it was in a tensor of `sizes`.
Array from_rows(const Array& rows, const Dims& sizes, int dim) {
  Dims permuted = sizes;
  permuted.erase(dim);
  permuted.push_back(rows.size(1));
  Dims back = Dims::filled(sizes.size(), 0);
  const Dims order = order_with_last(sizes.size(), dim);
  for (int i = 0; i < order.size(); ++i) back[static_cast<int>(order[i])] = i;
  return rows.reshape(permuted).permute(back);
}

int ranks_over(const ShardSpec& spec, int dim) {
  return spec.cut(dim) ? static_cast<int>(spec.cut(dim)->parts.size()) : 1;
}

// The cut of `dim` moved to another dim that is whole and has something for every rank; null: there is none.
SpecPtr cut_elsewhere(const ShardSpec& x, int dim) {
  int best = -1;
  for (int d = 0; d < x.dim(); ++d)
    if (d != dim && !x.cut(d) && x.sizes()[d] >= ranks_over(x, dim) &&
        (best < 0 || x.sizes()[d] > x.sizes()[best]))
      best = d;
  if (best < 0) return nullptr;
  DimCut cut{x.cut(dim)->axes, {}};
  for (const Interval i : default_partition(x.sizes()[best], ranks_over(x, dim))) cut.parts.push_back({i});
  return with_cut(*with_cut(x, dim, x.sizes()[dim], std::nullopt), best, x.sizes()[best], cut);
}

struct OrderSetup {
  int dim = 0;
  std::int64_t k = 0;  // how many of the dim are kept
  bool descending = false;
  bool all = false;  // sort: the results are cut as the input is
};

Strategy order_plan(const std::vector<SpecPtr>& in, const OrderSetup& s) {
  SpecPtr x = without_partial(*in[0]);
  Strategy strategy;
  if (x->cut(s.dim)) {
    const std::int64_t ranks = ranks_over(*x, s.dim);
    const SpecPtr elsewhere = cut_elsewhere(*x, s.dim);
    // Candidates are a value and a number, from everyone to everyone.
    const bool few = !s.all && 3 * s.k * ranks * ranks <= x->sizes()[s.dim];
    if (elsewhere && !few) {
      x = elsewhere;
    } else {
      strategy.extra = std::make_shared<const CutDim>(*x, s.dim);
    }
  }
  const SpecPtr out = s.all ? x : with_cut(*x, s.dim, s.k, std::nullopt);
  strategy.inputs = {x};
  strategy.outputs = {out, out};
  return strategy;
}

// Which items go where depends on their values, so the host has to see them: it does the whole work.
Ranked ordered_over_ranks(const CutDim& cut, const Array& x, const OrderSetup& s) {
  const Array rows = x.device() == Device::Meta ? x : x.to(Device::Cpu);
  Ranked found = s.all ? sample_sort(cut, rows, s.descending) : merged_topk(cut, rows, s.k, s.descending);
  if (x.device() == rows.device()) return found;
  return {found.values.to(x.device()), found.numbers.to(x.device())};
}

void order_local(LocalCall& l, const OrderSetup& s) {
  const Array rows = as_rows(l.in[0], s.dim);
  const auto* cut = l.plan ? static_cast<const CutDim*>(l.plan->extra.get()) : nullptr;
  const Ranked found = cut == nullptr ? order_rows(rows, s.all ? rows.size(1) : s.k, s.descending)
                                      : ordered_over_ranks(*cut, rows, s);
  l.out[0] = from_rows(found.values, l.in[0].sizes(), s.dim);
  l.out[1] = from_rows(found.numbers, l.in[0].sizes(), s.dim);
}

const OpDef kBackward{"index_put"};

Pair ordered(const OpDef& op, const Tensor& x, const OrderSetup& s) {
  std::array<Dims, 2> sizes{x.sizes(), x.sizes()};
  for (Dims& d : sizes) d[s.dim] = s.k;
  auto local = [&](LocalCall& l) { order_local(l, s); };
  auto plan = [&](const std::vector<SpecPtr>& in) { return order_plan(in, s); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    const Picking back{.dim = s.dim, .elements = true, .checked = true};
    return [back, target = PutTarget{in[0].sizes()[s.dim], in[0].spec()}, name = op.name,
            numbers = SavedTensor(out[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{put(kBackward, back, g[0], numbers.unpack(name), target)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = Hash()
                     .add(std::int64_t{s.dim})
                     .add(s.k)
                     .add(static_cast<std::int64_t>(s.descending))
                     .add(static_cast<std::int64_t>(s.all));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  Tensors out = call(c);
  return {out[0], out[1]};
}

Pair sort_named(const char* name, const Tensor& x, std::int64_t dim_given, bool descending) {
  static const OpDef op{"sort"};
  TS_CHECK(x.defined(), name, "the input is undefined");
  const int dim = wrap_dim(name, dim_given, x.dim());
  if (x.dim() == 0) return {x, zeros_like(to(x.detach(), DType::I64))};
  return ordered(op, x, {dim, x.sizes()[dim], descending, true});
}

}  // namespace

std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim, bool descending) {
  return sort_named("sort", x, dim, descending);
}

Tensor argsort(const Tensor& x, std::int64_t dim, bool descending) {
  return sort_named("argsort", x, dim, descending).second;
}

std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, const TopkOptions& options) {
  static const OpDef op{"topk"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  const int dim = wrap_dim(op.name, options.dim, x.dim());
  const std::int64_t n = x.dim() == 0 ? 1 : x.sizes()[dim];
  TS_CHECK(k >= 0 && k <= n, op.name, "k is {}; dim {} of {} allows 0 to {}", k, dim, x.sizes().str(), n);
  if (x.dim() == 0) return sort(x, dim);
  if (x.is_sharded() && x.spec()->cut(dim) && k * ranks_over(*x.spec(), dim) > n) {
    const Pair all = sort(x, dim, options.largest);
    return {slice(all.first, dim, 0, k), slice(all.second, dim, 0, k)};
  }
  return ordered(op, x, {dim, k, options.largest, false});
}

}  // namespace tessera
