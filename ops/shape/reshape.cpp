// reshape: a local view wherever the cut can be said in the new dims (ops/shape/reshape_plan.cpp).
#include "ops/op.h"
#include "ops/shape/reshape_plan.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"

namespace tessera {
namespace {

// The product of all sizes but the one that is -1, of which `open` is the place (-1: none is).
std::int64_t known_elements(const char* op, const Dims& given, int& open) {
  Dims known;
  open = -1;
  for (int d = 0; d < given.size(); ++d) {
    if (given[d] == -1) {
      TS_CHECK(open < 0, op, "only one size may be -1, given {}", given.str());
      open = d;
    } else {
      TS_CHECK(given[d] >= 0, op, "sizes must not be negative, given {}", given.str());
      known.push_back(given[d]);
    }
  }
  check_countable(op, known);
  return numel_of(known);
}

Dims resolved_sizes(const Tensor& x, const Dims& given) {
  Dims sizes = given;
  int open = -1;
  const std::int64_t known = known_elements("reshape", given, open);
  if (open >= 0) {
    TS_CHECK(known > 0 && x.numel() % known == 0, "reshape", "{} does not fit into {}", x.sizes().str(),
             given.str());
    sizes[open] = x.numel() / known;
  }
  TS_CHECK(numel_of(sizes) == x.numel(), "reshape", "a tensor of sizes {} ({} elements) cannot have sizes {}",
           x.sizes().str(), x.numel(), given.str());
  return sizes;
}

}  // namespace

Tensor reshape(const Tensor& x, const Dims& given) {
  static const OpDef op{"reshape"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  const Dims sizes = resolved_sizes(x, given);
  if (sizes == x.sizes()) return x;
  const auto as = [](const Array& a, const Dims& to) {
    return a.numel() == 0 ? Array::empty(to, a.dtype(), a.device()) : a.reshape(to);
  };
  auto local = [&](LocalCall& l) {
    Array x_local = l.in[0];
    if (l.plan != nullptr && l.plan->extra != nullptr) {
      const CommScope scope("redistribute");
      const auto& steps = *static_cast<const ReshapeSteps*>(l.plan->extra.get());
      x_local = redistribute(as(x_local, steps.merged->local_sizes()), steps.merged, steps.recut);
    }
    l.out[0] = as(x_local, l.out_sizes(0, sizes));
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return plan_reshape(in[0], sizes); };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return
        [back = x.sizes()](const BackwardContext&, const Tensors& g) { return Tensors{reshape(g[0], back)}; };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(sizes);
  c.plan = plan;
  c.passes_on = true;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor flatten(const Tensor& x, std::int64_t start_dim, std::int64_t end_dim) {
  TS_CHECK(x.defined(), "flatten", "the input is undefined");
  if (x.dim() == 0) return reshape(x, {1});
  const int lo = wrap_dim("flatten", start_dim, x.dim());
  const int hi = wrap_dim("flatten", end_dim, x.dim());
  TS_CHECK(lo <= hi, "flatten", "start_dim {} comes after end_dim {}", lo, hi);
  Dims sizes;
  std::int64_t merged = 1;
  for (int d = 0; d < x.dim(); ++d) {
    if (d < lo || d > hi) sizes.push_back(x.sizes()[d]);
    if (d >= lo && d <= hi) merged *= x.sizes()[d];
    if (d == hi) sizes.push_back(merged);
  }
  return reshape(x, sizes);
}

Tensor unflatten(const Tensor& x, std::int64_t dim, const Dims& given) {
  TS_CHECK(x.defined(), "unflatten", "the input is undefined");
  TS_CHECK(!given.empty(), "unflatten", "no sizes given");
  const int at = wrap_dim("unflatten", dim, x.dim());
  Dims part = given;
  int open = -1;
  const std::int64_t known = known_elements("unflatten", given, open);
  const std::int64_t n = x.sizes()[at];
  if (open >= 0 && known > 0) part[open] = n / known;
  TS_CHECK(numel_of(part) == n, "unflatten", "dim {} of size {} cannot become {}", at, n, given.str());
  Dims sizes;
  for (int d = 0; d < x.dim(); ++d) {
    if (d != at) sizes.push_back(x.sizes()[d]);
    if (d == at)
      for (std::int64_t s : part) sizes.push_back(s);
  }
  return reshape(x, sizes);
}

}  // namespace tessera
