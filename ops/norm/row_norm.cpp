#include "ops/norm/row_norm.h"

#include "ops/reduce/groups.h"

namespace tessera {

RowNorm row_norm(const char* op, const Tensor& x, const Dims& shape, std::span<const Tensor> parameters) {
  TS_CHECK(x.defined() && is_floating(x.dtype()), op, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  const int lead = x.dim() - shape.size();
  bool fits = !shape.empty() && lead >= 0;
  for (int d = 0; fits && d < shape.size(); ++d) fits = shape[d] == x.sizes()[d + lead];
  TS_CHECK(fits, op, "normalized_shape {} must be the last sizes of the input {}", shape.str(),
           x.sizes().str());
  for (const Tensor& p : parameters)
    TS_CHECK(!p.defined() || (p.sizes() == shape && p.dtype() == x.dtype()), op,
             "a weight or bias must have sizes {} and dtype {}, given {} {}", shape.str(), name_of(x.dtype()),
             p.sizes().str(), name_of(p.dtype()));
  RowNorm n;
  n.shape = shape;
  n.count = static_cast<double>(numel_of(shape));
  for (int d = lead; d < x.dim(); ++d) n.dims.push_back(d);
  return n;
}

Rule row_norm_rule(const Tensor& x, const RowNorm& n, int parameters, int statistics) {
  RuleTerm all;
  RuleTerm affine;
  RuleTerm stats;
  for (int d = 0; d < x.dim(); ++d) {
    const RuleDim t{static_cast<char>('a' + d), false, false};
    all.push_back(t);
    const bool normalised = d >= x.dim() - n.dims.size();
    if (normalised) affine.push_back(t);
    stats.push_back(normalised ? RuleDim{} : t);
  }
  Rule r;
  r.inputs = {all};
  r.outputs = {all};
  for (int i = 0; i < parameters; ++i) r.inputs.push_back(affine);
  for (int i = 0; i < statistics; ++i) r.outputs.push_back(stats);
  return r;
}

Strategy row_norm_plan(const Rule& rule, const std::vector<SpecPtr>& in, const Tensor& x, const RowNorm& n,
                       int statistics) {
  Strategy strategy = resolve({&rule, in, std::vector<Dims>(rule.outputs.size(), x.sizes()), {}});
  const SpecPtr of_rows = reduced_spec(*strategy.inputs[0], n.dims, true);
  for (int i = 0; i < statistics; ++i) strategy.outputs.push_back(of_rows);
  return strategy;
}

bool rows_are_cut(const ShardSpec* spec, const RowNorm& n) {
  return spec != nullptr && cutting_axes(*spec, n.dims) != 0;
}

void complete_rows(const Array& per_row, const ShardSpec* spec, const RowNorm& n) {
  const unsigned mask = spec == nullptr ? 0 : cutting_axes(*spec, n.dims);
  if (mask != 0) spec->mesh().group(mask).all_reduce(per_row, ReduceOp::Sum).wait();
}

Array as_rows(const Array& x, const RowNorm& n) {
  const int lead = x.dim() - n.dims.size();
  std::int64_t cols = 1;
  for (int d = lead; d < x.dim(); ++d) cols *= x.size(d);
  std::int64_t rows = 1;
  for (int d = 0; d < lead; ++d) rows *= x.size(d);
  return x.contiguous().reshape({rows, cols});
}

Array flat(const Array& a) { return a.defined() ? a.contiguous().reshape({a.numel()}) : a; }

}  // namespace tessera
