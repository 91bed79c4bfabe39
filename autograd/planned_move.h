// Placement changes of a call, whose plan knows how its inputs lie.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// settled(t, to) of one that lies as `from`: by its spec, or replicated where it is plain.
Tensor settled(const Tensor& t, const SpecPtr& from, const SpecPtr& to);

}  // namespace tessera
