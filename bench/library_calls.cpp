#include "bench/library_calls.h"

#include <cstdint>

#include "bench/device.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/ops.h"
#include "runtime/error.h"
#include "runtime/graph.h"

namespace tessera::bench {
namespace {

using cuda::AttentionGraph;
using cuda::AttentionPass;
using cuda::BlasLayout;
using cuda::BlasShape;
using cuda::ConvGraph;
using cuda::GraphPointer;
using cuda::GraphTensor;
using cuda::HeadStrides;

// At a multiple of the widest alignment that a plan is made for; the allocator's small blocks promise less.
Array numbers(std::int64_t count, DType dtype) {
  constexpr std::int64_t kWidest = 256;
  const std::int64_t element = size_of(dtype);
  Generator generator(11);
  const Array all = to(to(randn({count + kWidest / element}, generator), dtype), Device::Cuda).local();
  const auto over = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(all.raw()) % kWidest);
  return all.slice(0, over == 0 ? 0 : (kWidest - over) / element, count);
}
Array workspace(std::int64_t bytes) { return Array::empty({bytes}, DType::Bool, Device::Cuda); }

// A graph of cuDNN's and the memory of its tensors.
class Operands {
 public:
  explicit Operands(DType dtype) : dtype_(dtype) {}
  void add(std::int64_t tensor, std::int64_t count) { add(tensor, count, dtype_); }
  void add(std::int64_t tensor, std::int64_t count, DType dtype) {
    held_.push_back(numbers(count, dtype));
    pointers_.push_back({tensor, held_.back().raw()});
  }
  std::function<void()> run(std::shared_ptr<cuda::GraphPlan> plan) const {
    const Array space = workspace(plan->workspace_bytes());
    return [held = held_, at = pointers_, plan = std::move(plan), space] {
      const std::string error = plan->execute(at, space.raw(), cuda::current_stream());
      TS_CHECK(error.empty(), "bench", "cuDNN: {}", error);
    };
  }

 private:
  DType dtype_;
  std::vector<Array> held_;
  std::vector<GraphPointer> pointers_;
};

// Elements from a tensor's first to its last.
std::int64_t extent(const GraphTensor& t, int dims) {
  std::int64_t last = 0;
  for (int d = 0; d < dims; ++d) last += (t.size[d] - 1) * t.stride[d];
  return last + 1;
}

std::function<void()> bare(const ConvGraph& g) {
  const int dims = 2 + g.spatial;
  Operands operands(g.dtype);
  operands.add(cuda::kConvX, extent(g.x, dims));
  operands.add(cuda::kConvW, extent(g.w, dims));
  operands.add(cuda::kConvY, extent(g.y, dims));
  if (g.bias) operands.add(cuda::kConvBias, g.y.size[1]);
  if (g.keeps) operands.add(cuda::kConvGiven, extent(g.y, dims));
  return operands.run(cuda::plan_of("bench", g));
}

std::function<void()> bare(const AttentionGraph& g) {
  Operands operands(g.dtype);
  struct Sizes {
    std::int64_t heads, rows, width;
  };
  const auto add = [&](std::int64_t tensor, const HeadStrides& s, const Sizes& n) {
    operands.add(tensor, (g.batch - 1) * s.batch + (n.heads - 1) * s.head + (n.rows - 1) * s.row + n.width);
  };
  const Sizes q{g.heads, g.rows, g.d};
  const Sizes k{g.key_heads, g.keys, g.d};
  const Sizes v{g.key_heads, g.keys, g.dv};
  const Sizes out{g.heads, g.rows, g.dv};
  add(cuda::kAttnQ, g.q, q);
  add(cuda::kAttnK, g.k, k);
  add(cuda::kAttnV, g.v, v);
  add(cuda::kAttnOut, g.out, out);
  operands.add(cuda::kAttnLse, g.batch * g.heads * g.rows, DType::F32);
  if (g.pass == AttentionPass::Backward) {
    add(cuda::kAttnDout, g.dout, out);
    add(cuda::kAttnDq, g.dq, q);
    add(cuda::kAttnDk, g.dk, k);
    add(cuda::kAttnDv, g.dv_out, v);
  }
  return operands.run(cuda::plan_of("bench", g));
}

std::function<void()> bare(const BlasShape& s) {
  const cuda::BlasPlan* plan = cuda::blas_plan(s);
  TS_CHECK(plan != nullptr, "bench", "cuBLASLt has no algorithm for {} x {} x {}", s.m, s.n, s.k);
  const auto matrix = [&](const BlasLayout& l, std::int64_t rows, std::int64_t cols) {
    const std::int64_t columns = l.transposed ? rows : cols;
    return numbers((s.batch - 1) * l.batch_stride + columns * l.ld, s.dtype);
  };
  const Array d = matrix(s.d, s.m, s.n);
  const Array p = matrix(s.p, s.m, s.k);
  const Array q = matrix(s.q, s.k, s.n);
  const Array bias = s.bias ? numbers(s.m, s.dtype) : Array();
  const Array given = s.given_ld > 0 ? numbers(s.given_ld * s.n, s.dtype) : Array();
  const cuda::BlasPointers at{d.raw(), p.raw(), q.raw(), bias.defined() ? bias.raw() : nullptr,
                              given.defined() ? given.raw() : nullptr};
  const Array space = workspace(cuda::workspace_bytes(*plan));
  return [s, at, space, held = std::vector<Array>{d, p, q, bias, given}] {
    cuda::run_blas(*cuda::blas_plan(s), at, space.raw(), cuda::current_stream());
  };
}

}  // namespace

std::function<void()> bare_call(const cuda::LibraryCall& call) {
  return std::visit([](const auto& asked) { return bare(asked); }, call);
}

LibraryCalls library_calls_of(const std::function<void()>& f) {
  std::vector<std::function<void()>> calls;
  {
    const cuda::LibraryLog log;
    f();
    for (const cuda::LibraryCall& call : log.calls()) calls.push_back(bare_call(call));
  }
  LibraryCalls all;
  all.count = static_cast<int>(calls.size());
  all.launch = [calls = std::move(calls)] {
    for (const auto& call : calls) call();
  };
  if (all.count == 0) return all;
  all.launch();  // whatever is made at first use
  auto graph = std::make_shared<CudaGraph>();
  graph->capture_begin();
  all.launch();
  graph->capture_end();
  all.replay = [graph] { graph->replay(); };
  return all;
}

void wait_for_device() { cuda::synchronize(cuda::compute_stream()); }

}  // namespace tessera::bench
