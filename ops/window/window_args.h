// Arguments that all operations with windows share. Internal to ops/.
#pragma once
#include "autograd/tensor.h"
#include "mesh/layout.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"
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

// The positions over which a window reaches, and those of a padded dim of size n; refused where 64 bits do
// not count them.
inline std::int64_t checked_reach(const char* op, const Window& w) {
  return checked_sum(op, checked_product(op, w.dilation, w.kernel - 1), 1);
}
inline std::int64_t checked_padded(const char* op, std::int64_t n, const Window& w) {
  return checked_sum(op, checked_sum(op, n, w.pad_lo), w.pad_hi);
}

// f(x) of an input with a batch dim; one without, [C, spatial...], is a batch of one meanwhile.
template <class F>
Tensor batched(const Tensor& x, int spatial, F f) {
  if (x.dim() != spatial + 1) return f(x);
  return squeeze(f(unsqueeze(x, 0)), 0);
}

}  // namespace tessera
