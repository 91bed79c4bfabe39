// Comparing what came out with what a case expects.
#pragma once
#include <string>

#include "runtime/array.h"

namespace tessera::verify {

// Empty if every element of `got` is within `allowed` of `want`; else one phrase with the worst element's
// index and values, or with the sizes or types that differ. NaN equals NaN and an infinity equals itself.
// Floating values may have any floating type; integers and booleans must keep theirs.
std::string difference(const Array& got, const Array& want, double allowed);

// The allowed error in float64: 1e-7 of the largest expected value (they are stored as float32), or 1e-4 of
// what the case allows in float32 where that is more.
double allowed_in_f64(const Array& want, double stated);

}  // namespace tessera::verify
