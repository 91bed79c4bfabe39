// Losses. With Mean the value is the mean over the *global* tensor, whatever its cuts.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

enum class Reduction : std::uint8_t { None, Mean, Sum };
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);

}  // namespace tessera
