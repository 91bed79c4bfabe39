// Softmax and log-softmax along a dim. Cut dim: the rows' maxima and sums travel (one message), not the data.
// `dtype`, where one is given: the floating dtype that the input is cast to first, and that the result has;
// gradients return in the input's own.
#pragma once
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

Tensor softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype = {});
Tensor log_softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype = {});

}  // namespace tessera
