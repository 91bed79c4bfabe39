// Joining arrays whose elements lie alike in memory. Knows nothing above runtime/.
#pragma once
#include <span>

#include "runtime/array.h"

namespace tessera::cpu {

// Joins `in` along `dim` to `out`, whose dims lie in `order`, writing `out` from its first element to its
// last: channels of maps whose channels lie innermost, say. False, and nothing done, where an input lies
// otherwise, or where what follows each other of one input is too short or too long for that to be quicker
// than copying one input after the other.
bool join_runs(const Array& out, std::span<const Array> in, int dim, const Dims& order);

}  // namespace tessera::cpu
