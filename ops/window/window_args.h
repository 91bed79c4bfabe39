// Arguments that all operations with windows share. Internal to ops/.
#pragma once
#include "autograd/tensor.h"
#include "ops/shape/shape_ops.h"
#include "runtime/error.h"

namespace tessera {

// One value per spatial dim from a list of one (which counts for all) or n values of at least `least`.
inline Dims per_dim(const char* op, const char* what, const Dims& given, int n, std::int64_t least) {
  TS_CHECK(given.size() == n || given.size() == 1, op,
           "{} needs one value or {} (one per spatial dim), given {}", what, n, given.str());
  for (std::int64_t v : given)
    TS_CHECK(v >= least, op, "{} must be at least {}, given {}", what, least, given.str());
  return given.size() == n ? given : Dims::filled(n, given[0]);
}

// f(x) of an input with a batch dim; one without, [C, spatial...], is a batch of one meanwhile.
template <class F>
Tensor batched(const Tensor& x, int spatial, F f) {
  if (x.dim() != spatial + 1) return f(x);
  return squeeze(f(unsqueeze(x, 0)), 0);
}

}  // namespace tessera
