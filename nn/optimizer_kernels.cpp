#include "nn/optimizer_kernels.h"

namespace tessera::kernels {
namespace {

void sum_of_squares_cpu(std::span<const Array> arrays, double* out) { *out = cpu::sum_of_squares(arrays); }

}  // namespace

Kernel<void(const cpu::AdamWArgs&)> adamw{"adamw", &cpu::adamw_step};
Kernel<void(const cpu::SgdArgs&)> sgd{"sgd", &cpu::sgd_step};
Kernel<void(std::span<const Array>, double*)> sum_of_squares{"sum_of_squares", &sum_of_squares_cpu};
Kernel<void(std::span<const Array>, double)> scale_all{"scale_all", &cpu::scale_all};

}  // namespace tessera::kernels
