#include "runtime/rng_kernels.h"

namespace tessera::detail {

const std::vector<RngKernels>& machine_rng_kernels() {
  static const std::vector<RngKernels> kernels{baseline_rng_kernels()};
  return kernels;
}

}  // namespace tessera::detail
