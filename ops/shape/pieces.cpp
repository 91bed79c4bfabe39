// Operations that take tensors apart and put them together, written with slice, split and cat.
#include "ops/op.h"
#include "ops/shape/shape_ops.h"

namespace tessera {

Tensor stack(const Tensors& tensors, std::int64_t dim) {
  TS_CHECK(!tensors.empty() && tensors[0].defined(), "stack", "needs at least one tensor");
  const int at = wrap_dim("stack", dim, tensors[0].dim() + 1);
  Tensors parts;
  for (const Tensor& t : tensors) {
    TS_CHECK(t.defined() && t.sizes() == tensors[0].sizes(), "stack",
             "all tensors must have the same sizes, given {} and {}", tensors[0].sizes().str(),
             t.defined() ? t.sizes().str() : "an undefined tensor");
    parts.push_back(unsqueeze(t, at));
  }
  return cat(parts, at);
}

}  // namespace tessera
