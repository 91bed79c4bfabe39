#include "ops/shape/element_map.h"

#include "mesh/redistribute.h"
#include "ops/shape/layout_ops.h"

namespace tessera {
namespace {

SpecPtr as_like(const SpecPtr& like, const ShardSpec& dy, const Dims& sizes) {
  const SpecPtr base = like ? like : ShardSpec::replicated(dy.mesh(), sizes);
  Placements p = base->placements();
  for (std::size_t a = 0; a < p.size(); ++a) {
    const Placement& q = dy.placements()[a];
    if (!p[a].is_shard()) p[a] = q.is_partial() && q.op == ReduceOp::Sum ? Partial() : Replicate();
  }
  return with_placements(*base, p);
}

// `spec` cut along one more dim by the axes that cut dim `d` of dy: where that leaves dy nearest to where it
// lies, in the same dim if others are no nearer. `spec` itself if there is nothing to cut.
SpecPtr cut_as(const SpecPtr& spec, const ShardSpec& dy, int d, SpecFunction result_of) {
  SpecPtr best;
  double least = 0;
  const auto offer = [&](int e) {
    const std::int64_t n = spec->sizes()[e];
    if (spec->cut(e) || n < 2) return;
    DimCut cut = *dy.cut(d);
    if (n != dy.sizes()[d]) cut = even_cut(cut, n);
    SpecPtr candidate = with_cut(*spec, e, n, cut);
    const double cost = redistribute_cost(dy, *result_of(candidate));
    if (best && cost >= least) return;
    least = cost;
    best = std::move(candidate);
  };
  if (d < spec->dim()) offer(d);
  for (int e = 0; e < spec->dim(); ++e)
    if (e != d) offer(e);
  return best && least <= redistribute_cost(dy, *result_of(spec)) ? best : spec;
}

}  // namespace

SpecPtr gradient_spec(const SpecPtr& like, const ShardSpec& dy, const Dims& sizes, SpecFunction result_of) {
  SpecPtr spec = as_like(like, dy, sizes);
  for (int d = 0; d < dy.dim(); ++d) {
    if (!dy.cut(d)) continue;
    const std::vector<int>& axes = dy.cut(d)->axes;
    if (std::all_of(axes.begin(), axes.end(), [&](int a) { return spec->placement(a).is_replicate(); }))
      spec = cut_as(spec, dy, d, result_of);
  }
  return spec;
}

}  // namespace tessera
