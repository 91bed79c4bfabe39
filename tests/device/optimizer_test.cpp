// Optimizers on the device beside those of the CPU: many tensors, both types, and a host that waits for
// nothing.
#include <catch2/catch.hpp>

#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "tests/support/world.h"

namespace ts = tessera;

namespace {

// More tensors than one launch takes, one of several blocks, some empty.
ts::Tensors params_on(ts::Device device) {
  ts::Generator generator(11);
  ts::Tensors list;
  for (int i = 0; i < 150; ++i) {
    const ts::Dims sizes = i == 40 ? ts::Dims{3, 5001} : i % 9 == 5 ? ts::Dims{0, 3} : ts::Dims{i % 7 + 1, 5};
    const ts::DType dtype = i % 3 == 1 ? ts::DType::F64 : ts::DType::F32;
    list.push_back(ts::Tensor(ts::randn(sizes, generator, dtype).local().to(device)).set_requires_grad());
  }
  return list;
}

void set_gradients(const ts::Tensors& params, std::uint64_t seed) {
  ts::Generator generator(seed);
  for (const ts::Tensor& p : params)
    p.set_grad(ts::Tensor(ts::randn(p.sizes(), generator, p.dtype()).local().to(p.device())));
}

void check_alike(const ts::Tensors& there, const ts::Tensors& here) {
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto a = there[i].to_vector();
    const auto b = here[i].to_vector();
    const double tolerance = here[i].dtype() == ts::DType::F64 ? 1e-13 : 1e-6;
    for (std::size_t j = 0; j < a.size(); ++j)
      if (!(std::abs(a[j] - b[j]) <= tolerance * std::max(1.0, std::abs(b[j]))))
        FAIL("tensor " << i << " element " << j << ": " << a[j] << " and " << b[j]);
  }
}

template <class Optimizer, class Options>
void compare(const Options& options) {
  const ts::Tensors there = params_on(ts::Device::Cuda);
  const ts::Tensors here = params_on(ts::Device::Cpu);
  Optimizer device(there, options);
  Optimizer cpu(here, options);
  for (int step = 0; step < 4; ++step) {
    device.set_lr(0.1 / (step + 1));
    cpu.set_lr(0.1 / (step + 1));
    set_gradients(there, 100 + static_cast<std::uint64_t>(step));
    set_gradients(here, 100 + static_cast<std::uint64_t>(step));
    const std::int64_t before = ts::cuda::host_waits();
    const ts::optim::GradNorm norm = device.step_clipped(step == 1 ? 1e6 : 2.0);
    CHECK(ts::cuda::host_waits() == before);
    CHECK(norm == Approx(cpu.step_clipped(step == 1 ? 1e6 : 2.0)));
    CHECK(ts::cuda::host_waits() == before + 1);
  }
  check_alike(there, here);
}

}  // namespace

TEST_CASE("optimizers on the device take the CPU's steps and do not wait", "[device]") {
  compare<ts::optim::AdamW>(ts::optim::AdamWOptions{.weight_decay = 0.1});
  compare<ts::optim::SGD>(ts::optim::SGDOptions{.lr = 0.1});
  compare<ts::optim::SGD>(ts::optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.2});
  compare<ts::optim::SGD>(
      ts::optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
}

TEST_CASE("clipping on the device scales as on the CPU and does not wait", "[device]") {
  const ts::Tensors there = params_on(ts::Device::Cuda);
  const ts::Tensors here = params_on(ts::Device::Cpu);
  for (const ts::Tensors* params : {&there, &here}) set_gradients(*params, 3);
  const std::int64_t before = ts::cuda::host_waits();
  const ts::optim::GradNorm norm = ts::optim::clip_grad_norm_(there, 1.5);
  CHECK(ts::cuda::host_waits() == before);
  CHECK(norm == Approx(ts::optim::clip_grad_norm_(here, 1.5)));
  ts::Tensors a;
  ts::Tensors b;
  for (const ts::Tensor& p : there) a.push_back(p.grad());
  for (const ts::Tensor& p : here) b.push_back(p.grad());
  check_alike(a, b);
}
