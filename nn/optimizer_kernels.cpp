#include "nn/optimizer_kernels.h"

#include <cmath>

namespace tessera::kernels {
namespace {

void sum_of_squares_cpu(std::span<const Array> arrays, const Array& out) {
  *out.data<double>() = cpu::sum_of_squares(arrays);
}

void scale_all_cpu(std::span<const Array> arrays, const Array& factor) {
  if (const double by = *factor.data<double>(); by != 1.0) cpu::scale_all(arrays, by);
}

void clip_factor_cpu(const Array& norm, const Array& factor, double max_norm) {
  double& n = *norm.data<double>();
  n = std::sqrt(n);
  *factor.data<double>() = std::isfinite(n) && n > max_norm ? max_norm / n : 1.0;
}

}  // namespace

Kernel<void(const cpu::AdamWArgs&)> adamw{"adamw", &cpu::adamw_step};
Kernel<void(const cpu::SgdArgs&)> sgd{"sgd", &cpu::sgd_step};
Kernel<void(std::span<const Array>, const Array&)> sum_of_squares{"sum_of_squares", &sum_of_squares_cpu};
Kernel<void(std::span<const Array>, const Array&)> scale_all{"scale_all", &scale_all_cpu};
Kernel<void(const Array&, const Array&, double)> clip_factor{"clip_factor", &clip_factor_cpu};

}  // namespace tessera::kernels
