// Operations that take tensors apart and put them together, written with slice, split and cat.
#include "mesh/mesh_state.h"
#include "ops/op.h"
#include "ops/random/random.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"

namespace tessera {

Tensor stack(const Tensors& tensors, std::int64_t dim) {
  TS_CHECK(!tensors.empty() && tensors[0].defined(), "stack", "needs at least one tensor, given {}",
           tensors.empty() ? "none" : "an undefined tensor");
  const int at = wrap_dim("stack", dim, tensors[0].dim() + 1);
  Tensors parts;
  for (const Tensor& t : tensors) {
    TS_CHECK(t.defined() && t.sizes() == tensors[0].sizes(), "stack",
             "all tensors must have the same sizes, given {} and {}", given_str(tensors[0]), given_str(t));
    check_together("stack", {&tensors[0], &t});
    parts.push_back(unsqueeze(t, at));
  }
  return cat(parts, at);
}

Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  TS_CHECK(x.defined() && x.dim() > 0, "narrow", "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim("narrow", dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  const std::int64_t lo = start < 0 ? start + n : start;
  TS_CHECK(lo >= 0 && length >= 0 && length <= n - lo, "narrow",
           "{} elements from {} do not lie in dim {} of size {}", length, start, d, n);
  return slice(x, d, lo, lo + length);
}

Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index) {
  TS_CHECK(x.defined() && x.dim() > 0, "select", "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim("select", dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  TS_CHECK(index >= -n && index < n, "select", "there is no element {} in dim {} of size {}", index, d, n);
  const std::int64_t at = index < 0 ? index + n : index;
  return squeeze(slice(x, d, at, at + 1), d);
}

Tensors chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim) {
  TS_CHECK(x.defined() && x.dim() > 0, "chunk", "needs a tensor with dims, given {}", given_str(x));
  TS_CHECK(chunks > 0, "chunk", "at least one chunk is needed, {} asked for", chunks);
  const int d = wrap_dim("chunk", dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  const std::int64_t length = n / chunks + (n % chunks != 0 ? 1 : 0);
  std::vector<std::int64_t> lengths;
  if (n == 0) lengths.assign(static_cast<std::size_t>(chunks), 0);
  for (std::int64_t at = 0; at < n; at += length) lengths.push_back(std::min(length, n - at));
  return split(x, lengths, d);
}

Tensors split_evenly(const Tensor& x, std::int64_t size, std::int64_t dim) {
  TS_CHECK(x.defined() && x.dim() > 0, "split", "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim("split", dim, x.dim());
  const std::int64_t n = x.sizes()[d];
  TS_CHECK(size > 0 || (size == 0 && n == 0), "split", "pieces of {} elements asked for of dim {} of size {}",
           size, d, n);
  std::vector<std::int64_t> lengths;
  if (n == 0) lengths.push_back(0);  // one piece of nothing, as in PyTorch
  for (std::int64_t at = 0; at < n; at += std::min(size, n - at)) lengths.push_back(std::min(size, n - at));
  return split(x, lengths, d);
}

namespace {

// The same tensor with the dim whole: the axes that cut it cut the other dim of which ranks have most, inside
// whatever cuts that; or nothing, where there is no other.
SpecPtr with_dim_whole(const SpecPtr& x, int dim) {
  if (!x->cut(dim)) return x;
  const SpecPtr whole = with_cut(*x, dim, x->sizes()[dim], std::nullopt);
  const auto share = [&](int d) {
    return x->sizes()[d] / (x->cut(d) ? static_cast<std::int64_t>(x->cut(d)->parts.size()) : 1);
  };
  int best = -1;
  for (int d = 0; d < x->dim(); ++d)
    if (d != dim && (best < 0 || share(d) > share(best))) best = d;
  return best < 0 ? whole : cut_further(*whole, best, x->cut(dim)->axes);
}

// The spec without a dim that is whole.
SpecPtr without_dim(const ShardSpec& x, int dim) {
  Dims sizes = x.sizes();
  sizes.erase(dim);
  std::vector<std::optional<DimCut>> cuts;
  for (int d = 0; d < x.dim(); ++d)
    if (d != dim) cuts.push_back(x.cut(d) ? std::optional<DimCut>(*x.cut(d)) : std::nullopt);
  Placements placements = x.placements();
  for (Placement& p : placements)
    if (p.is_shard() && p.dim > dim) --p.dim;
  return ShardSpec::make(x.mesh(), placements, sizes, std::move(cuts));
}

}  // namespace

Tensors unbind(const Tensor& x, std::int64_t dim) {
  static const OpDef op{"unbind"};
  TS_CHECK(x.defined() && x.dim() > 0, op.name, "needs a tensor with dims, given {}", given_str(x));
  const int d = wrap_dim(op.name, dim, x.dim());
  const auto n = static_cast<std::size_t>(x.sizes()[d]);
  if (n == 0) return {};
  Dims piece = x.sizes();
  piece.erase(d);
  const std::vector<Dims> sizes(n, piece);
  auto local = [&](LocalCall& l) {
    for (std::size_t i = 0; i < n; ++i)
      l.out[i] = l.in[0].slice(d, static_cast<std::int64_t>(i), 1).squeeze(d);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const SpecPtr whole = with_dim_whole(in[0], d);
    return Strategy{{whole}, std::vector<SpecPtr>(n, without_dim(*whole, d)), 0};
  };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor> out) -> GradFunction {
    return [n, d, model = out[0].detach()](const BackwardContext&, const Tensors& g) {
      Tensors parts = g;
      for (std::size_t i = 0; i < n; ++i)
        if (!parts[i].defined()) parts[i] = zeros_like(model);
      return Tensors{stack(parts, d)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = Hash().add(std::int64_t{d});
  c.plan = plan;
  c.passes_on = true;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

}  // namespace tessera
