#include "ops/reduce/reduction.h"

#include "ops/reduce/groups.h"
#include "ops/shape/shape_ops.h"

namespace tessera {

Tensor with_kept_dims(const Tensor& t, const Dims& sizes, const Dims& dims) {
  return reshape(t, reduced_sizes(sizes, dims, true));
}

void check_floating(const char* op, const Tensor& x) {
  TS_CHECK(x.defined() && is_floating(x.dtype()), op, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
}

double reduced_count(const Dims& sizes, const Dims& dims) {
  double n = 1;
  for (std::int64_t d : dims) n *= static_cast<double>(sizes[static_cast<int>(d)]);
  return n;
}

Tensor complete_reduction(const CompleteReduction& r, const Tensor& x, CompleteLocal local,
                          CompleteGradient gradient) {
  const Dims sizes = reduced_sizes(x.sizes(), r.dims, r.keepdim);
  auto run = [&](LocalCall& l) {
    const Array kept = local(l.in[0], l.in_spec(0));
    l.out[0] = kept.reshape(reduced_sizes(l.in[0].sizes(), r.dims, r.keepdim));
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const SpecPtr whole_terms = without_partial(*in[0]);
    return Strategy{{whole_terms}, {reduced_spec(*whole_terms, r.dims, r.keepdim)}, 0};
  };
  auto make_gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) {
    return gradient(in[0], out[0]);
  };
  OpCall c;
  c.op = r.op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash()
                     .add(static_cast<std::int64_t>(r.parameters))
                     .add(static_cast<std::int64_t>(reduction_hash(r.dims, r.keepdim)));
  c.plan = plan;
  c.local = run;
  if (gradient) c.gradient = make_gradient;
  return call_one(c);
}

}  // namespace tessera
