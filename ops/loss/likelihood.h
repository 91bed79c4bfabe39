// What cross_entropy against probabilities makes of the logarithms of its own. Internal to ops/loss.
#pragma once
#include <optional>

#include "ops/op.h"

namespace tessera {

// -target log_p weight (undefined: 1; else it broadcasts) of every element, or `scale` times their sum. Both
// are of one type and equal sizes.
Tensor likelihood(const OpDef& op, const Tensor& log_p, const Tensor& target, const Tensor& weight,
                  std::optional<double> scale);

}  // namespace tessera
