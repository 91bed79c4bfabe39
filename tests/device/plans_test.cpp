// Plans of the libraries by what they depend on: a bounded number is kept, and one that is still used lives.
#include <catch2/catch.hpp>

#include "emulated/cudnn_graph.h"
#include "emulated/cudnn_text.h"
#include "ops/cpu/conv_problem.h"
#include "ops/cuda/attention_rule.h"
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

cuda::ConvGraph graph_in(DType dtype, cuda::ConvKind kind) {
  cuda::ConvGraph g = graph_of(900);
  g.kind = kind;
  g.dtype = dtype;
  g.bias = kind == cuda::ConvKind::Forward;
  return g;
}
cuda::AttentionGraph attention_in(DType dtype, cuda::AttentionPass pass) {
  const cpu::AttentionSizes sizes{1, 4, 2, 8, 8, 16, 16};
  cuda::AttentionGraph g = cuda::attention_form(pass, dtype, sizes, true, 0.5);
  g.q = g.out = g.dout = g.dq = {4 * 8 * 16, 8 * 16, 16};
  g.k = g.v = g.dk = g.dv_out = {2 * 8 * 16, 8 * 16, 16};
  if (pass == cuda::AttentionPass::Forward) g.dout = g.dq = g.dk = g.dv_out = {};
  return g;
}

using emulated::Descriptor;

// The engine that was chosen, out of what a plan says of itself.
template <class Graph>
std::shared_ptr<Descriptor> engine_for(const Graph& graph) {
  std::string why;
  const auto plan = cuda::build_plan(graph, {"", std::int64_t{1} << 30}, why);
  REQUIRE(why == "");
  const std::string text = plan->serialized();
  const std::shared_ptr<Descriptor> config = emulated::from_text(text.substr(text.find("emulated-plan")));
  REQUIRE(config);
  return config->child(CUDNN_ATTR_ENGINECFG_ENGINE);
}
// What the library told cuDNN.
template <class Graph>
std::shared_ptr<Descriptor> told(const Graph& graph) {
  return engine_for(graph)->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

struct Types {
  int sums = 0, passing = 0;
};
// How often the graph says a type of sums, or one of what passes from an operation to an element-wise one,
// with which as 16 bits it must be refused.
void refuses_halves(Descriptor& root, Descriptor& d, bool is_read, Types& seen) {
  for (auto& [name, attribute] : d.attributes) {
    const bool reads = d.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
                       name != CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
    for (const auto& child : attribute.children) refuses_halves(root, *child, reads, seen);
    if (attribute.type != CUDNN_TYPE_DATA_TYPE) continue;
    const bool of_tensor = d.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR;
    if (of_tensor && !(is_read && d.value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0)) continue;
    const std::vector<char> kept = attribute.bytes;
    for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
      std::memcpy(attribute.bytes.data(), &type, sizeof type);
      CHECK(emulated::fault_of(root) != "");
    }
    attribute.bytes = kept;
    ++(of_tensor ? seen.passing : seen.sums);
  }
}
template <class Graph>
Types refuses_halves(const Graph& graph) {
  const std::shared_ptr<Descriptor> root = told(graph);
  Types seen;
  refuses_halves(*root, *root, false, seen);
  CHECK(emulated::fault_of(*root) == "");
  return seen;
}

}  // namespace

TEST_CASE("sums of 16 bits are refused, and rounding what an element-wise operation is given", "[device]") {
  using cuda::AttentionPass;
  using cuda::ConvKind;
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (const ConvKind kind : {ConvKind::Forward, ConvKind::DataGradient, ConvKind::WeightGradient}) {
      const Types seen = refuses_halves(graph_in(dtype, kind));
      CHECK(seen.sums == (kind == ConvKind::Forward ? 2 : 1));  // the bias, too
      CHECK(seen.passing == (kind == ConvKind::Forward ? 1 : 0));
    }
  for (const DType dtype : {DType::BF16, DType::F16})
    for (const AttentionPass pass : {AttentionPass::Forward, AttentionPass::Backward}) {
      const Types seen = refuses_halves(attention_in(dtype, pass));
      CHECK(seen.sums > 8);
      CHECK(seen.passing > 8);
    }
}

TEST_CASE("of the engines that are offered none is taken that gives other bits every time or mixes windows",
          "[device]") {
  using cuda::ConvKind;
  // The stand-in offers one of each kind that is not wanted first.
  const auto notes = [](const auto& graph) {
    return engine_for(graph)->template values<int>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  };
  const std::vector<int> tensor_cores{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  for (const ConvKind kind : {ConvKind::Forward, ConvKind::DataGradient, ConvKind::WeightGradient}) {
    CHECK(notes(graph_in(DType::F32, kind)) == std::vector<int>());
    for (const DType dtype : {DType::F64, DType::BF16, DType::F16})
      CHECK(notes(graph_in(dtype, kind)) == tensor_cores);
  }
  for (const cuda::AttentionPass pass : {cuda::AttentionPass::Forward, cuda::AttentionPass::Backward})
    CHECK(notes(attention_in(DType::F16, pass)) == tensor_cores);
}

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
