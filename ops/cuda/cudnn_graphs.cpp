// The one file that includes cuDNN's frontend.
#include "ops/cuda/cudnn_graphs.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

namespace tessera::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kX = 1, kW = 2, kY = 3, kBias = 4 };

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

class Maker {
 public:
  explicit Maker(const ConvGraph& g) : g_(g), graph_(std::make_shared<fe::graph::Graph>()) {
    const fe::DataType_t compute = g.dtype == DType::F64 ? fe::DataType_t::DOUBLE : fe::DataType_t::FLOAT;
    graph_->set_io_data_type(type_of(g.dtype))
        .set_intermediate_data_type(compute)
        .set_compute_data_type(compute);
    switch (g.kind) {
      case ConvKind::Forward:
        forward();
        break;
      case ConvKind::DataGradient:
        finish(graph_->conv_dgrad(tensor("y", kY, g.y), tensor("w", kW, g.w),
                                  windows(fe::graph::Conv_dgrad_attributes())),
               kX, g.x);
        break;
      case ConvKind::WeightGradient:
        finish(graph_->conv_wgrad(tensor("y", kY, g.y), tensor("x", kX, g.x),
                                  windows(fe::graph::Conv_wgrad_attributes())),
               kW, g.w);
        break;
    }
  }
  std::shared_ptr<fe::graph::Graph> graph() const { return graph_; }

 private:
  int dims() const { return 2 + g_.spatial; }

  Tensor tensor(const char* name, Uid uid, const GraphTensor& t) {
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
  void finish(const Tensor& result, Uid uid, const GraphTensor& t) const {
    result->set_output(true).set_uid(uid).set_dim(list(t.size, dims())).set_stride(list(t.stride, dims()));
  }
  void forward() {
    const Tensor y = graph_->conv_fprop(tensor("x", kX, g_.x), tensor("w", kW, g_.w),
                                        windows(fe::graph::Conv_fprop_attributes()));
    if (!g_.bias) return finish(y, kY, g_.y);
    y->set_dim(list(g_.y.size, dims())).set_stride(list(g_.y.stride, dims()));
    GraphTensor b;
    for (int d = 0; d < dims(); ++d) {
      b.size[d] = d == 1 ? g_.y.size[1] : 1;
      b.stride[d] = d == 1 ? 1 : g_.y.size[1];
    }
    const auto add = fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD);
    finish(graph_->pointwise(y, tensor("bias", kBias, b), add), kY, g_.y);
  }

  const ConvGraph& g_;
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

class Plan : public GraphPlan {
 public:
  explicit Plan(std::shared_ptr<fe::graph::Graph> graph) : graph_(std::move(graph)) {}

  // Steps of building, one after another; what went wrong, or nothing.
  std::string build(const ConvGraph& g, std::string_view device) {
    if (!device.empty()) graph_->set_device_properties(properties_of(device));
    if (auto e = graph_->validate(); e.is_bad()) return e.get_message();
    auto e = device.empty() ? graph_->build_operation_graph(Handle::instance().get())
                            : graph_->build_operation_graph();
    if (e.is_bad()) return e.get_message();
    e = graph_->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (e.is_bad()) return e.get_message();
    graph_->deselect_numeric_notes(unwanted(g));
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
  std::string execute(const GraphPointers& p, void* workspace, StreamHandle stream) override {
    Handle& handle = Handle::instance();
    const std::lock_guard lock(handle.mutex);
    if (std::string error = handle.use(stream); !error.empty()) return error;
    void* in_order_of_uids[]{p.x, p.w, p.y, p.bias};
    auto e = graph_->execute(handle.get(), in_order_of_uids, p.bias == nullptr ? 3 : 4, workspace);
    return e.is_bad() ? e.get_message() : std::string();
  }

 private:
  static std::vector<fe::NumericalNote_t> unwanted(const ConvGraph& g) {
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

  std::shared_ptr<fe::graph::Graph> graph_;
  mutable std::int64_t workspace_ = -1;  // the frontend asks its plan anew each time
};

constexpr const char* kKinds[] = {"forward", "data_gradient", "weight_gradient"};

nlohmann::ordered_json to_json(const GraphTensor& t, int dims) {
  return {{"size", list(t.size, dims)}, {"stride", list(t.stride, dims)}};
}
DType floating_type(std::string_view name) {
  for (const DType t : {DType::F32, DType::F64, DType::BF16, DType::F16})
    if (name == name_of(t)) return t;
  throw std::runtime_error("unknown type " + std::string(name));
}
void read(const nlohmann::json& j, std::int64_t* to, std::size_t n) {
  if (j.size() != n) throw std::runtime_error("a list of another length is needed: " + j.dump());
  for (std::size_t i = 0; i < n; ++i) to[i] = j[i].get<std::int64_t>();
}

}  // namespace

std::string to_json(const ConvGraph& g) {
  nlohmann::ordered_json j;
  j["kind"] = kKinds[static_cast<int>(g.kind)];
  j["dtype"] = std::string(name_of(g.dtype));
  j["tf32"] = g.tf32;
  j["bias"] = g.bias;
  j["x"] = to_json(g.x, 2 + g.spatial);
  j["w"] = to_json(g.w, 2 + g.spatial);
  j["y"] = to_json(g.y, 2 + g.spatial);
  j["padding"] = list(g.padding, g.spatial);
  j["stride"] = list(g.stride, g.spatial);
  j["dilation"] = list(g.dilation, g.spatial);
  return j.dump();
}

ConvGraph conv_graph_from_json(std::string_view line) try {
  const nlohmann::json j = nlohmann::json::parse(line);
  ConvGraph g;
  const auto kind = j.at("kind").get<std::string>();
  const auto* at = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (at == std::end(kKinds)) throw std::runtime_error("unknown kind " + kind);
  g.kind = static_cast<ConvKind>(at - std::begin(kKinds));
  const auto dtype = j.at("dtype").get<std::string>();
  g.dtype = floating_type(dtype);
  g.tf32 = j.at("tf32").get<bool>();
  g.bias = j.at("bias").get<bool>();
  g.spatial = static_cast<int>(j.at("padding").size());
  if (g.spatial < 2 || g.spatial > kMaxSpatial) throw std::runtime_error("2 or 3 spatial dims are needed");
  const auto n = static_cast<std::size_t>(g.spatial);
  for (auto [name, tensor] : {std::pair{"x", &g.x}, {"w", &g.w}, {"y", &g.y}}) {
    read(j.at(name).at("size"), tensor->size, n + 2);
    read(j.at(name).at("stride"), tensor->stride, n + 2);
  }
  read(j.at("padding"), g.padding, n);
  read(j.at("stride"), g.stride, n);
  read(j.at("dilation"), g.dilation, n);
  return g;
} catch (const nlohmann::json::exception& e) {
  throw std::runtime_error(e.what());
}

std::unique_ptr<GraphPlan> build_plan(const ConvGraph& graph, std::string_view device, std::string& why) {
  try {
    auto plan = std::make_unique<Plan>(Maker(graph).graph());
    why = plan->build(graph, device);
    if (why.empty()) return plan;
  } catch (const std::exception& e) {
    why = e.what();
  }
  return nullptr;
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
