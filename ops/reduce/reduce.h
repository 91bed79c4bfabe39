// Reductions. `dims` empty: all dims.
//
// Sharded: over cut dims sum, mean, amax and amin give Partial (no message until someone needs the value);
// var exchanges mean and squared deviations in one message.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  // over nothing: NaN
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  // ties share the gradient
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1.0, bool keepdim = false);
// {variance, mean}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1.0,
                                   bool keepdim = false);
// x summed down to `sizes` (which broadcast to x's): the gradient of broadcasting.
Tensor sum_to_size(const Tensor& x, const Dims& sizes);

}  // namespace tessera
