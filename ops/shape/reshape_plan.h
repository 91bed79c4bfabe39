// How a reshape goes over cuts. Internal to ops/shape.
#pragma once
#include "ops/op.h"

namespace tessera {

// Where no cut of the old shape is one of the new shape: the input seen with dims merged, under its own cut
// and under one at which the new shape can be cut too. Elements move from one to the other.
struct ReshapeSteps {
  SpecPtr merged;
  SpecPtr recut;
};

// `out` has as many elements as x. The strategy's `extra` are the ReshapeSteps, or null where the input's
// part is the output's.
Strategy plan_reshape(const SpecPtr& x, const Dims& out);

}  // namespace tessera
