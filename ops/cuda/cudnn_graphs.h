// What the library asks of cuDNN: a graph of one convolution (below) or of attention (attention_graph.h) as a
// plain struct, and the plan that cuDNN makes of it. cuDNN's own headers take a minute to compile; they are
// seen by cudnn_graphs.cpp alone.
//
// Maps lie channels-last and so do weights; a convolution over one dim is one over two of which the first has
// size 1. Addresses are multiples of 16. Padding is the same at both ends (ops/cuda/conv_rule.h brings others
// into this form).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ops/cpu/norm_activation.h"
#include "ops/cuda/attention_graph.h"
#include "runtime/cuda/api.h"
#include "runtime/dtype.h"

namespace tessera::cuda {

enum class ConvKind : std::uint8_t { Forward, DataGradient, WeightGradient };

constexpr int kMaxSpatial = 3;

// Sizes and strides in elements, in the order N C spatial...; weights: O, C / groups, spatial....
struct GraphTensor {
  std::int64_t size[2 + kMaxSpatial] = {};
  std::int64_t stride[2 + kMaxSpatial] = {};
  bool operator==(const GraphTensor&) const = default;
};

// All that a plan depends on. Entries beyond `spatial` are 0.
struct ConvGraph {
  ConvKind kind = ConvKind::Forward;
  DType dtype = DType::F32;
  bool tf32 = false;  // products of f32 may be rounded to 10 bits
  bool bias = false;  // forward only: [1, O, 1...] is added before the result is rounded
  // Forward only: follows before the result is rounded. `keeps`: what it is given is written too, as y lies.
  cpu::Activation activation = cpu::Activation::None;
  bool keeps = false;
  int spatial = 2;  // 2 or 3
  GraphTensor x, w, y;
  std::int64_t padding[kMaxSpatial] = {};
  std::int64_t stride[kMaxSpatial] = {};
  std::int64_t dilation[kMaxSpatial] = {};
  bool operator==(const ConvGraph&) const = default;
};
// The tensors of a convolution's graph.
enum ConvTensor : std::int64_t { kConvX = 1, kConvW, kConvY, kConvBias, kConvGiven };

// One line of JSON, and back; throws std::runtime_error for what is not such a line.
std::string to_json(const ConvGraph& graph);
ConvGraph conv_graph_from_json(std::string_view line);
std::string to_json(const AttentionGraph& graph);
AttentionGraph attention_graph_from_json(std::string_view line);
// Whether a line is of attention.
bool is_attention_json(std::string_view line);

// Where one tensor of a graph lies, a ConvTensor or an AttentionTensor. A plan is given all of its graph's,
// in the order of their numbers.
struct GraphPointer {
  std::int64_t tensor = 0;
  void* at = nullptr;
};

class GraphPlan {
 public:
  GraphPlan() = default;
  virtual ~GraphPlan() = default;
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;
  virtual std::int64_t workspace_bytes() const = 0;
  // The engine and how it is set, for people.
  virtual std::string name() const = 0;
  // Bytes for restore_plan in a later process; empty where cuDNN cannot.
  virtual std::string serialized() const = 0;
  // Asynchronous, on `stream`. Gives back what went wrong, or nothing.
  virtual std::string execute(std::span<const GraphPointer> pointers, void* workspace,
                              StreamHandle stream) = 0;
};

// What a plan is made for.
struct PlanSetting {
  // The properties of a device as JSON, for judging plans on a machine without it; such a plan is not
  // executed. Empty: the device that this process drives.
  std::string_view device;
  std::int64_t most_workspace;  // bytes
};

// The best plan that cuDNN knows among those that give the same bits every time, work on every position by
// itself (no Winograd, no FFT: a NaN stays where its windows are), round products of f32 only if the graph
// allows it and need no more workspace than is given. nullptr and the reason in `why` where it has none.
std::unique_ptr<GraphPlan> build_plan(const ConvGraph& graph, const PlanSetting& setting, std::string& why);
std::unique_ptr<GraphPlan> build_plan(const AttentionGraph& graph, const PlanSetting& setting,
                                      std::string& why);
// A plan that was serialized by the same version of cuDNN for the same kind of device; nullptr and the reason
// where it does not fit any more.
std::unique_ptr<GraphPlan> restore_plan(std::string_view serialized, std::string_view device,
                                        std::string& why);
// cuDNN's version, as 91900 for 9.19.0.
std::int64_t cudnn_version();

}  // namespace tessera::cuda
