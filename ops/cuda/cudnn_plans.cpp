#include "ops/cuda/cudnn_plans.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "ops/cuda/library_log.h"
#include "ops/cuda/plan_table.h"
#include "ops/cuda/settings.h"
#include "ops/plan_cache.h"
#include "ops/plan_file.h"
#include "runtime/array.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"
#include "runtime/log.h"

namespace tessera::cuda {
namespace {

struct Hash {
  std::uint64_t value = 14695981039346656037ULL;
  void add(std::int64_t v) { value = (value ^ static_cast<std::uint64_t>(v)) * 1099511628211ULL; }
  void add(const GraphTensor& t) {
    for (auto v : t.size) add(v);
    for (auto v : t.stride) add(v);
  }
  std::size_t operator()(const ConvGraph& g) const {
    Hash h;
    h.add(static_cast<std::int64_t>(g.kind) | static_cast<std::int64_t>(g.dtype) << 8 |
          static_cast<std::int64_t>(g.tf32) << 16 | static_cast<std::int64_t>(g.bias) << 17 |
          static_cast<std::int64_t>(g.spatial) << 18 | static_cast<std::int64_t>(g.keeps) << 20 |
          static_cast<std::int64_t>(g.activation) << 24);
    for (const GraphTensor* t : {&g.x, &g.w, &g.y}) h.add(*t);
    for (int d = 0; d < g.spatial; ++d) {
      h.add(g.padding[d]);
      h.add(g.stride[d]);
      h.add(g.dilation[d]);
    }
    return h.value ^ h.value >> 32;
  }
  std::size_t operator()(const AttentionGraph& g) const {
    Hash h;
    h.add(static_cast<std::int64_t>(g.pass) | static_cast<std::int64_t>(g.dtype) << 8 |
          static_cast<std::int64_t>(g.causal) << 16);
    h.add(std::bit_cast<std::int32_t>(g.scale));
    for (auto v : {g.batch, g.heads, g.key_heads, g.rows, g.keys, g.d, g.dv}) h.add(v);
    for (const HeadStrides* s : {&g.q, &g.k, &g.v, &g.out, &g.dout, &g.dq, &g.dk, &g.dv_out})
      for (auto v : {s->batch, s->head, s->row}) h.add(v);
    return h.value ^ h.value >> 32;
  }
};

// The version and device that plans are good for, and how the file knows whole lines: older ones had no sum.
std::string maker() {
  int numbers[3] = {};
  const cudaDeviceAttr asked[3] = {cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
                                   cudaDevAttrMultiProcessorCount};
  int device = 0;
  use_device();
  check(cudaGetDevice(&device), "cudaGetDevice");
  for (int i = 0; i < 3; ++i)
    check(cudaDeviceGetAttribute(&numbers[i], asked[i], device), "cudaDeviceGetAttribute");
  return fmt::format("{}{} sm {}.{} multiprocessors {} fnv1a", PlanFile::kBegin, cudnn_version(), numbers[0],
                     numbers[1], numbers[2]);
}

std::atomic<std::int64_t> runs = 0;

// Never destroyed: cuDNN may be gone before static variables are.
PlanFile& plan_file() {
  static auto* instance = [] {
    const std::string path = plan_cache();
    return new PlanFile(path, path.empty() ? "" : maker());
  }();
  return *instance;
}

// Plans that nobody holds any more. Their kernels may still wait in the compute stream, so each goes when
// this has passed the point where it was given up.
class Leaving {
 public:
  static Leaving& instance() {
    static auto* leaving = new Leaving;
    return *leaving;
  }
  // Where the device has failed plans stay: nothing is known of what it still uses.
  void add(std::unique_ptr<GraphPlan> plan) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      waiting_.push_back({std::move(plan), {}, false});
      if (GraphCapture::current() != nullptr) return;  // an event would become part of the graph
      use_device();
      for (auto w = waiting_.rbegin(); w != waiting_.rend() && !w->recorded; ++w) {
        w->passed.record(compute_stream());
        w->recorded = true;
      }
      while (!waiting_.empty() && waiting_.front().recorded && waiting_.front().passed.done())
        waiting_.pop_front();
    } catch (const std::exception& e) {
      log_debug("cuDNN: a plan stays: {}", e.what());
    }
  }

 private:
  struct Waiting {
    std::unique_ptr<GraphPlan> plan;
    Event passed;
    bool recorded = false;
  };
  std::mutex mutex_;
  std::deque<Waiting> waiting_;
};

// What a plan may take for the time that it runs. The rule of attention has reckoned with the scores already.
std::int64_t most_workspace(const ConvGraph&) { return cudnn_workspace_bytes(); }
std::int64_t most_workspace(const AttentionGraph&) {
  return cudnn_workspace_bytes() + attention_score_bytes();
}
const char* workspace_setting(const ConvGraph&) { return "TESSERA_CUDNN_WORKSPACE"; }
const char* workspace_setting(const AttentionGraph&) {
  return "TESSERA_CUDNN_WORKSPACE and TESSERA_ATTENTION_SCORES";
}

template <class Graph>
class Plans {
 public:
  static Plans& instance() {
    static auto* plans = new Plans;
    return *plans;
  }
  std::shared_ptr<GraphPlan> get(const char* op, const Graph& graph) {
    return plans_.get(graph, [&](const Graph& g) {
      return std::shared_ptr<GraphPlan>(make(op, g).release(), [](GraphPlan* plan) {
        Leaving::instance().add(std::unique_ptr<GraphPlan>(plan));
      });
    });
  }

 private:
  std::unique_ptr<GraphPlan> make(const char* op, const Graph& graph) const {
    const std::string text = to_json(graph);
    if (const char* path = std::getenv("TESSERA_CUDNN_RECORD")) {
      const std::string fault = append_line(path, text);
      TS_CHECK(fault.empty(), "TESSERA_CUDNN_RECORD", "{}", fault);
    }
    const std::int64_t most = most_workspace(graph);
    std::string why;
    use_device();
    if (const auto bytes = plan_file().find(text))
      if (auto kept = restore_plan(*bytes, {}, why); kept && kept->workspace_bytes() <= most) return kept;
    auto plan = build_plan(graph, {{}, most}, why);
    if (!plan)
      TS_FAIL(Backend, op,
              "cuDNN has no plan for {} that takes at most {} bytes beside its operands ({}): {}", text, most,
              workspace_setting(graph), why);
    log_debug("cuDNN: plan {} made for {}", plan->name(), text);
    keep(text, *plan);
    return plan;
  }

  static void keep(const std::string& text, const GraphPlan& plan) {
    if (!plan_file().wants(text)) return;
    if (const std::string bytes = plan.serialized(); !bytes.empty()) plan_file().add(text, bytes);
  }

  PlanTable<Graph, GraphPlan, Hash> plans_;
};

}  // namespace

std::shared_ptr<GraphPlan> plan_of(const char* op, const ConvGraph& graph) {
  return Plans<ConvGraph>::instance().get(op, graph);
}
std::shared_ptr<GraphPlan> plan_of(const char* op, const AttentionGraph& graph) {
  return Plans<AttentionGraph>::instance().get(op, graph);
}

int compute_capability() {
  static const int capability = [] {
    int device = 0;
    int major = 0;
    int minor = 0;
    use_device();
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
          "cudaDeviceGetAttribute");
    return 10 * major + minor;
  }();
  return capability;
}

std::int64_t plan_runs() { return runs; }

namespace {

template <class Graph>
void run(const char* op, const Graph& graph, std::span<const GraphPointer> pointers) {
  const std::shared_ptr<GraphPlan> plan = plan_of(op, graph);
  if (GraphCapture* capture = GraphCapture::current()) capture->keep(plan);
  LibraryLog::note(graph);
  const Array workspace = Array::empty({plan->workspace_bytes()}, DType::Bool, Device::Cuda);
  const std::string error = plan->execute(pointers, workspace.raw(), current_stream());
  ++runs;
  if (!error.empty()) TS_FAIL(Backend, op, "cuDNN could not run {}: {}", plan->name(), error);
}

}  // namespace

void run_graph(const char* op, const ConvGraph& graph, std::span<const GraphPointer> pointers) {
  run(op, graph, pointers);
}
void run_graph(const char* op, const AttentionGraph& graph, std::span<const GraphPointer> pointers) {
  run(op, graph, pointers);
}

}  // namespace tessera::cuda
