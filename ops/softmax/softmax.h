// Softmax and log-softmax along a dim. Cut dim: the rows' maxima and sums travel (one message), not the data.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

Tensor softmax(const Tensor& x, std::int64_t dim);
Tensor log_softmax(const Tensor& x, std::int64_t dim);

}  // namespace tessera
