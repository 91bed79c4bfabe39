// The one file that includes cuDNN's frontend.
#include "ops/cuda/cudnn_graphs.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>

namespace tessera::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::DataType_t type_of(DType t) {
  switch (t) {
    case DType::BF16:
      return fe::DataType_t::BFLOAT16;
    case DType::F16:
      return fe::DataType_t::HALF;
    case DType::F64:
      return fe::DataType_t::DOUBLE;
    default:
      return fe::DataType_t::FLOAT;
  }
}

std::vector<std::int64_t> list(const std::int64_t* from, int n) { return {from, from + n}; }

class ConvMaker {
 public:
  explicit ConvMaker(const ConvGraph& g) : g_(g), graph_(std::make_shared<fe::graph::Graph>()) {
    const fe::DataType_t compute = g.dtype == DType::F64 ? fe::DataType_t::DOUBLE : fe::DataType_t::FLOAT;
    graph_->set_io_data_type(type_of(g.dtype))
        .set_intermediate_data_type(compute)
        .set_compute_data_type(compute);
    switch (g.kind) {
      case ConvKind::Forward:
        forward();
        break;
      case ConvKind::DataGradient:
        finish(graph_->conv_dgrad(tensor("y", kConvY, g.y), tensor("w", kConvW, g.w),
                                  windows(fe::graph::Conv_dgrad_attributes())),
               kConvX, g.x);
        break;
      case ConvKind::WeightGradient:
        finish(graph_->conv_wgrad(tensor("y", kConvY, g.y), tensor("x", kConvX, g.x),
                                  windows(fe::graph::Conv_wgrad_attributes())),
               kConvW, g.w);
        break;
    }
  }
  std::shared_ptr<fe::graph::Graph> graph() const { return graph_; }

 private:
  int dims() const { return 2 + g_.spatial; }

  Tensor tensor(const char* name, std::int64_t uid, const GraphTensor& t) {
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_name(name).set_uid(uid).set_dim(list(t.size, dims())).set_stride(list(t.stride, dims()));
    return graph_->tensor(attributes);
  }
  template <class Attributes>
  Attributes windows(Attributes attributes) const {
    attributes.set_padding(list(g_.padding, g_.spatial))
        .set_stride(list(g_.stride, g_.spatial))
        .set_dilation(list(g_.dilation, g_.spatial));
    return attributes;
  }
  void finish(const Tensor& result, std::int64_t uid, const GraphTensor& t) const {
    result->set_output(true).set_uid(uid).set_dim(list(t.size, dims())).set_stride(list(t.stride, dims()));
  }
  void forward() {
    Tensor y = graph_->conv_fprop(tensor("x", kConvX, g_.x), tensor("w", kConvW, g_.w),
                                  windows(fe::graph::Conv_fprop_attributes()));
    if (g_.bias) {
      as_result(y);
      GraphTensor b;
      for (int d = 0; d < dims(); ++d) {
        b.size[d] = d == 1 ? g_.y.size[1] : 1;
        b.stride[d] = d == 1 ? 1 : g_.y.size[1];
      }
      y = graph_->pointwise(y, tensor("bias", kConvBias, b), mode(fe::PointwiseMode_t::ADD));
    }
    if (g_.activation != cpu::Activation::None) {
      if (g_.keeps) {
        finish(y, kConvGiven, g_.y);
      } else {
        as_result(y);
      }
      y = graph_->pointwise(y, mode(mode_of(g_.activation)));
    }
    finish(y, kConvY, g_.y);
  }
  // Of the size of y, without memory.
  void as_result(const Tensor& t) const {
    t->set_dim(list(g_.y.size, dims())).set_stride(list(g_.y.stride, dims()));
  }
  static fe::graph::Pointwise_attributes mode(fe::PointwiseMode_t mode) {
    return fe::graph::Pointwise_attributes().set_mode(mode);
  }
  static fe::PointwiseMode_t mode_of(cpu::Activation activation) {
    switch (activation) {
      case cpu::Activation::Relu:
        return fe::PointwiseMode_t::RELU_FWD;
      case cpu::Activation::Silu:
        return fe::PointwiseMode_t::SWISH_FWD;
      case cpu::Activation::Gelu:
        return fe::PointwiseMode_t::GELU_FWD;
      default:
        return fe::PointwiseMode_t::GELU_APPROX_TANH_FWD;
    }
  }

  const ConvGraph& g_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

// Attention by the frontend's composite nodes: products, reductions and element-wise operations, which cuDNN
// knows as one kernel. Backward asks for the same bits every time, which costs the workspace that
// attention_rule.h reckons with.
//
// Results must not be asked for in f32, as one would for blocks that are merged: cuDNN 9.19 plans such graphs
// for a device of 9.0 and compiles kernels that still write a forward result as bf16, and that add dq into
// memory nobody has cleared, in no fixed order (seen in the machine code). It refuses only dk and dv.
class AttentionMaker {
 public:
  explicit AttentionMaker(const AttentionGraph& g) : g_(g), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(type_of(g.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const Tensor q = tensor("q", kAttnQ, {g.heads, g.rows, g.d}, g.q);
    const Tensor k = tensor("k", kAttnK, {g.key_heads, g.keys, g.d}, g.k);
    const Tensor v = tensor("v", kAttnV, {g.key_heads, g.keys, g.dv}, g.v);
    if (g.pass == AttentionPass::Forward) {
      forward(q, k, v);
    } else {
      backward(q, k, v);
    }
  }
  std::shared_ptr<fe::graph::Graph> graph() const { return graph_; }

 private:
  struct Sizes {
    std::int64_t heads, length, width;
  };
  std::vector<std::int64_t> dims(const Sizes& s) const { return {g_.batch, s.heads, s.length, s.width}; }
  static std::vector<std::int64_t> strides(const HeadStrides& s) { return {s.batch, s.head, s.row, 1}; }

  Tensor tensor(const char* name, std::int64_t uid, const Sizes& sizes, const HeadStrides& s) {
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_name(name).set_uid(uid).set_dim(dims(sizes)).set_stride(strides(s));
    return graph_->tensor(attributes);
  }
  void finish(const Tensor& result, std::int64_t uid, const Sizes& sizes, const HeadStrides& s) const {
    result->set_output(true).set_uid(uid).set_dim(dims(sizes)).set_stride(strides(s));
  }
  HeadStrides lse() const { return {g_.heads * g_.rows, g_.rows, 1}; }

  void forward(const Tensor& q, const Tensor& k, const Tensor& v) {
    auto how = fe::graph::SDPA_attributes();
    how.set_name("attention").set_generate_stats(true).set_attn_scale(g_.scale);
    how.set_implementation(fe::AttentionImplementation_t::COMPOSITE);
    if (g_.causal) how.set_causal_mask(true);
    const auto [out, stats] = graph_->sdpa(q, k, v, how);
    finish(out, kAttnOut, {g_.heads, g_.rows, g_.dv}, g_.out);
    finish(stats, kAttnLse, {g_.heads, g_.rows, 1}, lse());
    stats->set_data_type(fe::DataType_t::FLOAT);
  }
  void backward(const Tensor& q, const Tensor& k, const Tensor& v) {
    auto how = fe::graph::SDPA_backward_attributes();
    how.set_name("attention_backward").set_attn_scale(g_.scale).set_deterministic_algorithm(true);
    if (g_.causal) how.set_causal_mask(true);
    const Sizes of_out{g_.heads, g_.rows, g_.dv};
    const Tensor out = tensor("out", kAttnOut, of_out, g_.out);
    const Tensor dout = tensor("dout", kAttnDout, of_out, g_.dout);
    const Tensor stats = tensor("lse", kAttnLse, {g_.heads, g_.rows, 1}, lse());
    stats->set_data_type(fe::DataType_t::FLOAT);
    const auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, out, dout, stats, how);
    finish(dq, kAttnDq, {g_.heads, g_.rows, g_.d}, g_.dq);
    finish(dk, kAttnDk, {g_.key_heads, g_.keys, g_.d}, g_.dk);
    finish(dv, kAttnDv, {g_.key_heads, g_.keys, g_.dv}, g_.dv_out);
  }

  const AttentionGraph& g_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

// cuDNN's handle of this process; made at the first plan, kept to the end.
class Handle {
 public:
  static Handle& instance() {
    static auto* handle = new Handle;
    return *handle;
  }
  cudnnHandle_t get() const { return handle_; }
  std::string use(StreamHandle stream) {
    if (stream == stream_) return {};
    const cudnnStatus_t status = cudnnSetStream(handle_, stream);
    if (status != CUDNN_STATUS_SUCCESS) return cudnnGetErrorString(status);
    stream_ = stream;
    return {};
  }
  std::mutex mutex;

 private:
  Handle() {
    const cudnnStatus_t status = cudnnCreate(&handle_);
    if (status != CUDNN_STATUS_SUCCESS)
      throw std::runtime_error(std::string("cuDNN cannot be used: ") + cudnnGetErrorString(status));
  }
  cudnnHandle_t handle_ = nullptr;
  StreamHandle stream_ = nullptr;
};

std::shared_ptr<fe::DeviceProperties> properties_of(std::string_view device) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto e = properties->deserialize({device.begin(), device.end()}); e.is_bad())
    throw std::runtime_error(e.get_message());
  return properties;
}

constexpr std::size_t kMostTensors = 16;  // of a graph that the caller gives addresses of

class Plan : public GraphPlan {
 public:
  explicit Plan(std::shared_ptr<fe::graph::Graph> graph) : graph_(std::move(graph)) {}

  // Steps of building, one after another; what went wrong, or nothing.
  std::string build(const std::vector<fe::NumericalNote_t>& unwanted, const PlanSetting& setting) {
    const std::string_view device = setting.device;
    if (!device.empty()) graph_->set_device_properties(properties_of(device));
    if (auto e = graph_->validate(); e.is_bad()) return e.get_message();
    auto e = device.empty() ? graph_->build_operation_graph(Handle::instance().get())
                            : graph_->build_operation_graph();
    if (e.is_bad()) return e.get_message();
    e = graph_->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (e.is_bad()) return e.get_message();
    graph_->deselect_numeric_notes(unwanted).deselect_workspace_greater_than(setting.most_workspace);
    if (e = graph_->check_support(); e.is_bad()) return e.get_message();
    if (e = graph_->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE); e.is_bad()) return e.get_message();
    return {};
  }
  std::string restore(std::string_view serialized, std::string_view device) {
    const std::vector<std::uint8_t> data(serialized.begin(), serialized.end());
    if (!device.empty()) graph_->set_device_properties(properties_of(device));
    auto e = device.empty() ? graph_->deserialize(Handle::instance().get(), data, true, false)
                            : graph_->deserialize(data, true);
    return e.is_bad() ? e.get_message() : std::string();
  }

  std::int64_t workspace_bytes() const override {
    if (workspace_ < 0) workspace_ = graph_->get_workspace_size();
    return workspace_;
  }
  std::string name() const override {
    std::string name;
    return graph_->get_plan_name(name).is_bad() ? std::string() : name;
  }
  std::string serialized() const override {
    std::vector<std::uint8_t> data;
    if (graph_->serialize(data).is_bad()) return {};
    return {data.begin(), data.end()};
  }
  std::string execute(std::span<const GraphPointer> pointers, void* workspace, StreamHandle stream) override {
    Handle& handle = Handle::instance();
    const std::lock_guard lock(handle.mutex);
    if (std::string error = handle.use(stream); !error.empty()) return error;
    std::array<void*, kMostTensors> sorted{};
    std::size_t n = 0;
    for (const GraphPointer& p : pointers) sorted.at(n++) = p.at;
    auto e = graph_->execute(handle.get(), sorted.data(), static_cast<int>(n), workspace);
    return e.is_bad() ? e.get_message() : std::string();
  }

 private:
  std::shared_ptr<fe::graph::Graph> graph_;
  mutable std::int64_t workspace_ = -1;  // the frontend asks its plan anew each time
};

std::vector<fe::NumericalNote_t> unwanted(const ConvGraph& g) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{Note::NONDETERMINISTIC,
                          Note::FFT,
                          Note::WINOGRAD,
                          Note::WINOGRAD_TILE_4x4,
                          Note::WINOGRAD_TILE_6x6,
                          Note::WINOGRAD_TILE_13x13,
                          Note::REDUCED_PRECISION_REDUCTION};
  if (g.dtype == DType::F32) notes.push_back(Note::DOWN_CONVERT_INPUTS);
  if (g.dtype == DType::F32 && !g.tf32) notes.push_back(Note::TENSOR_CORE);
  return notes;
}
std::vector<fe::NumericalNote_t> unwanted(const AttentionGraph&) {
  return {fe::NumericalNote_t::NONDETERMINISTIC};
}

template <class Maker, class G>
std::unique_ptr<GraphPlan> built(const G& graph, const PlanSetting& setting, std::string& why) {
  try {
    auto plan = std::make_unique<Plan>(Maker(graph).graph());
    why = plan->build(unwanted(graph), setting);
    if (why.empty()) return plan;
  } catch (const std::exception& e) {
    why = e.what();
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<GraphPlan> build_plan(const ConvGraph& graph, const PlanSetting& setting, std::string& why) {
  return built<ConvMaker>(graph, setting, why);
}
std::unique_ptr<GraphPlan> build_plan(const AttentionGraph& graph, const PlanSetting& setting,
                                      std::string& why) {
  return built<AttentionMaker>(graph, setting, why);
}

std::unique_ptr<GraphPlan> restore_plan(std::string_view serialized, std::string_view device,
                                        std::string& why) {
  try {
    auto plan = std::make_unique<Plan>(std::make_shared<fe::graph::Graph>());
    why = plan->restore(serialized, device);
    if (why.empty()) return plan;
  } catch (const std::exception& e) {
    why = e.what();
  }
  return nullptr;
}

std::int64_t cudnn_version() { return static_cast<std::int64_t>(cudnnGetVersion()); }

}  // namespace tessera::cuda
