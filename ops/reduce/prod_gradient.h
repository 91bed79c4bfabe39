// The gradient of a product. Internal to ops/.
#pragma once
#include "ops/reduce/reduction.h"

namespace tessera {

// x was multiplied over r's dims to y. A quotient where the whole tensor holds no zero, else the product of
// the other factors, as PyTorch has it: NaN and infinity tell them apart. Of a tensor multiplied as a `whole`
// with several zeros: 0, whatever the other factors are. Where gradients are recorded it is a product or
// quotient that can be differentiated (beside zeros PyTorch's second derivatives have NaN at factors that are
// not finite, which come from how it works them out; here they are products). Zeros are counted over all
// ranks that x is cut over; of a plain tensor on a CPU the host looks at the number where it records. Not
// recorded: one kernel, one message for the number of zeros where x is cut, and one for the products of rows
// that are.
Tensor prod_gradient(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                     bool whole);

}  // namespace tessera
