#include "ops/loss/loss.h"

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "runtime/error.h"

namespace tessera {

Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction) {
  TS_CHECK(x.defined() && y.defined(), "mse_loss", "an input is undefined");
  TS_CHECK(x.sizes() == y.sizes(), "mse_loss", "prediction {} and target {} must have the same sizes",
           x.sizes().str(), y.sizes().str());
  TS_CHECK(is_floating(x.dtype()) || is_floating(y.dtype()), "mse_loss",
           "needs a floating tensor, given {} and {}", name_of(x.dtype()), name_of(y.dtype()));
  const Tensor squares = square(x - y);
  if (reduction == Reduction::None) return squares;
  return reduction == Reduction::Mean ? mean(squares) : sum(squares);
}

}  // namespace tessera
