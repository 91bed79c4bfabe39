// Plans of the libraries by what they depend on: a bounded number is kept, and one that is still used lives.
#include <catch2/catch.hpp>

#include "ops/cpu/conv_problem.h"
#include "ops/cuda/conv_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/plan_table.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "runtime/graph.h"
#include "runtime/process.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

// The n-th of 10⁴ shapes: a convolution of a map of its own size, and a product of its own sizes.
void convolve(int n) {
  const Dims map{1, 1, 1 + n % 100, 1 + n / 100};
  const Tensor x(Array::zeros(map, DType::F32, Device::Cuda));
  const Tensor w(Array::zeros({1, 1, 1, 1}, DType::F32, Device::Cuda));
  conv2d(x, w, Tensor(), {});
}
void multiply(int n) {
  const Tensor a(Array::zeros({1 + n % 22, 1 + n / 22 % 22}, DType::F32, Device::Cuda));
  const Tensor b(Array::zeros({1 + n / 22 % 22, 1 + n / 484}, DType::F32, Device::Cuda));
  matmul(a, b);
}

// A graph that no other test of this file asks for.
cuda::ConvGraph graph_of(std::int64_t width) {
  const auto zeros = [](const Dims& sizes) { return Array::zeros(sizes, DType::F32, Device::Cuda); };
  const cpu::ConvProblem p = cpu::conv_problem("test", zeros({1, 1, 2, width}), zeros({1, 1, 1, 1}),
                                               zeros({1, 1, 2, width}), {{1, 1}, {0, 0}, {0, 0}, {1, 1}});
  return cuda::conv_form(cuda::ConvKind::Forward, p, {}, false).graph;
}
// Every plan that is not held goes.
void flood(std::int64_t first) {
  for (std::size_t i = 0; i < cuda::kMostPlans; ++i)
    cuda::plan_of("test", graph_of(first + static_cast<std::int64_t>(i)));
}

}  // namespace

TEST_CASE("ten thousand shapes leave memory flat", "[device]") {
  const auto both = [](int n) {
    convolve(n);
    multiply(n);
    // What the host is ahead of the device is memory, too.
    if (n % 100 == 0) cuda::synchronize(cuda::compute_stream());
  };
  for (int n = 0; n < 4000; ++n) both(n);
  cuda::synchronize(cuda::compute_stream());
  const std::int64_t before = resident_bytes();
  for (int n = 4000; n < 10000; ++n) both(n);
  cuda::synchronize(cuda::compute_stream());
  CHECK(resident_bytes() - before < 16 << 20);
}

TEST_CASE("a plan of cuDNN goes when a thousand others were asked for since", "[device]") {
  std::weak_ptr<cuda::GraphPlan> seen = cuda::plan_of("test", graph_of(500));
  CHECK(cuda::plan_of("test", graph_of(500)) == seen.lock());  // kept, and used last
  flood(1000);
  CHECK(seen.expired());
  const std::shared_ptr<cuda::GraphPlan> held = cuda::plan_of("test", graph_of(500));
  seen = held;
  flood(3000);
  CHECK(seen.lock() == held);
  CHECK(cuda::plan_of("test", graph_of(500)) != held);  // made again
}

TEST_CASE("a plan that nobody holds any more stays until the device is done with it", "[device]") {
  const Array x = Array::full({1, 1, 2, 600}, 5, DType::F32, Device::Cuda);
  const Array w = Array::full({1, 1, 1, 1}, 3, DType::F32, Device::Cuda);
  for (int round = 0; round < 3; ++round) {
    std::shared_ptr<cuda::GraphPlan> plan = cuda::plan_of("test", graph_of(600));
    flood(7000 + 2000 * round);
    const Array workspace = Array::empty({plan->workspace_bytes()}, DType::Bool, Device::Cuda);
    const Array y = Array::zeros({1, 1, 2, 600}, DType::F32, Device::Cuda);
    for (int i = 0; i < 100; ++i) x.fill_(i);  // for which the plan waits
    const cuda::GraphPointer pointers[] = {
        {cuda::kConvX, x.raw()}, {cuda::kConvW, w.raw()}, {cuda::kConvY, y.raw()}};
    CHECK(plan->execute(pointers, workspace.raw(), cuda::compute_stream()).empty());
    plan.reset();
    CHECK(y.to_vector() == std::vector<double>(1200, 3 * 99));
  }
}

TEST_CASE("a plan takes no more memory beside its operands than is allowed", "[device]") {
  const std::int64_t before = cuda::cudnn_workspace_bytes();
  const auto made = [](std::int64_t width) {
    try {
      return std::to_string(cuda::plan_of("test", graph_of(width))->workspace_bytes());
    } catch (const Error& e) {
      return e.message();
    }
  };
  const std::int64_t needed = cuda::plan_of("test", graph_of(800))->workspace_bytes();
  cuda::set_cudnn_workspace_bytes(needed);
  const std::string enough = made(801);
  cuda::set_cudnn_workspace_bytes(needed - 1);
  const std::string less = made(802);
  cuda::set_cudnn_workspace_bytes(before);
  REQUIRE(needed > 0);
  CHECK(enough == std::to_string(needed));
  CHECK_THAT(less,
             Catch::Matchers::StartsWith("test: cuDNN has no plan for {\"kind\":\"forward\"") &&
                 Catch::Matchers::Contains(fmt::format("that takes at most {} bytes beside its operands "
                                                       "(TESSERA_CUDNN_WORKSPACE)",
                                                       needed - 1)) &&
                 Catch::Matchers::Contains(std::to_string(needed)));
}

TEST_CASE("a graph keeps the plans that it was captured with", "[device]") {
  std::vector<double> values(2 * 700);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 17) - 8;
  const Tensor x = to(tensor(values, {1, 1, 2, 700}, DType::F32), Device::Cuda);
  const Tensor w = to(full({1, 1, 1, 1}, 3.0), Device::Cuda);
  const NoGrad guard;
  const Tensor want = conv2d(x, w, Tensor(), {});
  std::weak_ptr<cuda::GraphPlan> plan = cuda::plan_of("test", graph_of(700));
  {
    CudaGraph graph;
    graph.capture_begin();
    const Tensor y = conv2d(x, w, Tensor(), {});
    graph.capture_end();
    flood(5000);
    CHECK_FALSE(plan.expired());
    graph.replay();
    CHECK(y.to_vector() == want.to_vector());
  }
  CHECK(plan.expired());
}
