// Calls of cuDNN and cuBLASLt as the library makes them, with memory of their own that is ready, and nothing
// around them.
#pragma once
#include <functional>

#include "ops/cuda/library_log.h"

namespace tessera::bench {

// Launches the call on the current stream. Its operands hold random numbers.
std::function<void()> bare_call(const cuda::LibraryCall& call);

}  // namespace tessera::bench
