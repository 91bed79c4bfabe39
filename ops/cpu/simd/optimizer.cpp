// Optimizer steps over flat memory, in PyTorch's order of operations.
#include "ops/cpu/simd/math.h"
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

template <class T>
void adamw(T* p, const T* g, T* m, T* v, i64 n, const AdamWCoefficients<T>& coefficients) {
  const AdamWCoefficients<T> c = coefficients;
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T gi = c.grad_scale * g[i];
    const T mi = m[i] + c.one_minus_beta1 * (gi - m[i]);
    const T vi = c.beta2 * v[i] + c.one_minus_beta2 * (gi * gi);
    const T denominator = vsqrt(vi) * c.inv_sqrt_c2 + c.eps;
    m[i] = mi;
    v[i] = vi;
    p[i] = p[i] * c.decay - c.step_size * (mi / denominator);
  }
}

template <class T>
void sgd(T* p, const T* g, T* buffer, i64 n, const SgdCoefficients<T>& coefficients) {
  const SgdCoefficients<T> c = coefficients;
  if (buffer == nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) p[i] -= c.lr * (c.grad_scale * g[i] + c.weight_decay * p[i]);
    return;
  }
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T d = c.grad_scale * g[i] + c.weight_decay * p[i];
    const T moved = c.momentum * buffer[i] + c.one_minus_dampening * d;
    const T b = c.first_step ? d : moved;
    buffer[i] = b;
    p[i] -= c.lr * (c.nesterov ? d + c.momentum * b : b);
  }
}

}  // namespace

const OptimizerTable& optimizer_table() {
  static constexpr OptimizerTable table{{&adamw<float>, &sgd<float>}, {&adamw<double>, &sgd<double>}};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
