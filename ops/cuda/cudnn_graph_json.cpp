// Graphs as lines of JSON: what TESSERA_CUDNN_RECORD and TESSERA_CUDNN_PLANS write and the test cudnn_plans
// reads.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ops/cuda/cudnn_graphs.h"

namespace tessera::cuda {
namespace {

std::vector<std::int64_t> list(const std::int64_t* from, int n) { return {from, from + n}; }

constexpr const char* kKinds[] = {"forward", "data_gradient", "weight_gradient"};
constexpr const char* kActivations[] = {"none", "relu", "silu", "gelu", "gelu_tanh"};

template <std::size_t n>
std::size_t place_of(const std::string& name, const char* const (&names)[n]) {
  const auto* at = std::find(std::begin(names), std::end(names), name);
  if (at == std::end(names)) throw std::runtime_error("unknown name " + name);
  return static_cast<std::size_t>(at - std::begin(names));
}

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

constexpr const char* kPasses[] = {"attention_forward", "attention_backward"};
// The numbers and layouts of attention, by their names.
constexpr std::pair<const char*, std::int64_t AttentionGraph::*> kNumbers[] = {
    {"batch", &AttentionGraph::batch},
    {"heads", &AttentionGraph::heads},
    {"key_heads", &AttentionGraph::key_heads},
    {"rows", &AttentionGraph::rows},
    {"keys", &AttentionGraph::keys},
    {"d", &AttentionGraph::d},
    {"dv", &AttentionGraph::dv}};
constexpr std::pair<const char*, HeadStrides AttentionGraph::*> kLayouts[] = {
    {"q", &AttentionGraph::q},     {"k", &AttentionGraph::k},          {"v", &AttentionGraph::v},
    {"out", &AttentionGraph::out}, {"dout", &AttentionGraph::dout},    {"dq", &AttentionGraph::dq},
    {"dk", &AttentionGraph::dk},   {"dv_out", &AttentionGraph::dv_out}};

}  // namespace

std::string to_json(const ConvGraph& g) {
  nlohmann::ordered_json j;
  j["kind"] = kKinds[static_cast<int>(g.kind)];
  j["dtype"] = std::string(name_of(g.dtype));
  j["tf32"] = g.tf32;
  j["bias"] = g.bias;
  if (g.activation != cpu::Activation::None) {
    j["activation"] = kActivations[static_cast<std::size_t>(g.activation)];
    j["keeps"] = g.keeps;
  }
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
  g.kind = static_cast<ConvKind>(place_of(j.at("kind").get<std::string>(), kKinds));
  const auto dtype = j.at("dtype").get<std::string>();
  g.dtype = floating_type(dtype);
  g.tf32 = j.at("tf32").get<bool>();
  g.bias = j.at("bias").get<bool>();
  if (j.contains("activation")) {
    g.activation =
        static_cast<cpu::Activation>(place_of(j.at("activation").get<std::string>(), kActivations));
    g.keeps = j.at("keeps").get<bool>();
  }
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

std::string to_json(const AttentionGraph& g) {
  nlohmann::ordered_json j;
  j["kind"] = kPasses[static_cast<int>(g.pass)];
  j["dtype"] = std::string(name_of(g.dtype));
  j["causal"] = g.causal;
  j["scale"] = g.scale;
  for (const auto& [name, number] : kNumbers) j[name] = g.*number;
  for (const auto& [name, layout] : kLayouts)
    j[std::string("stride_") + name] = {(g.*layout).batch, (g.*layout).head, (g.*layout).row};
  return j.dump();
}

AttentionGraph attention_graph_from_json(std::string_view line) try {
  const nlohmann::json j = nlohmann::json::parse(line);
  AttentionGraph g;
  const auto kind = j.at("kind").get<std::string>();
  if (kind != kPasses[0] && kind != kPasses[1]) throw std::runtime_error("unknown kind " + kind);
  g.pass = kind == kPasses[0] ? AttentionPass::Forward : AttentionPass::Backward;
  g.dtype = floating_type(j.at("dtype").get<std::string>());
  g.causal = j.at("causal").get<bool>();
  g.scale = j.at("scale").get<float>();
  for (const auto& [name, number] : kNumbers) g.*number = j.at(name).get<std::int64_t>();
  for (const auto& [name, layout] : kLayouts) {
    std::int64_t strides[3] = {};
    read(j.at(std::string("stride_") + name), strides, 3);
    g.*layout = {strides[0], strides[1], strides[2]};
  }
  return g;
} catch (const nlohmann::json::exception& e) {
  throw std::runtime_error(e.what());
}

bool is_attention_json(std::string_view line) { return line.find("\"attention_") != std::string_view::npos; }

}  // namespace tessera::cuda
