// cuDNN's backend interface, answered by the emulated device: what the frontend's headers call. A graph has
// engines, best first, and the last two do what the descriptors say (cudnn_graph.h) when their turn in the
// stream comes. Those before them have each a property that the library wants of no plan (other bits every
// time, windows that share their numbers, narrow sums), and give NaN. The first of the two says that it uses
// tensor cores, and rounds the factors of f32 convolutions as these do (TF32): who does not want that must
// say so.
#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "emulated/cudnn_descriptors.h"
#include "emulated/cudnn_graph.h"
#include "emulated/cudnn_text.h"
#include "emulated/memory.h"
#include "emulated/streams.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
  int device = tessera::emulated::current_device();
};

namespace {

namespace emu = tessera::emulated;
using emu::Attribute;
using emu::Descriptor;

// Asked for, and overwritten when a graph runs: whoever gives less, or memory that is in use, gets noticed.
constexpr std::int64_t kWorkspace = 160;

// What a caller holds. Several may share one descriptor; that one does not change once it is finalized.
struct Holder {
  std::shared_ptr<Descriptor> content = std::make_shared<Descriptor>();
};
Holder& holder(cudnnBackendDescriptor_t d) { return *static_cast<Holder*>(d); }

// Where nothing is carried out (streams.h), all lists of addresses are this one, and nobody looks into it.
Holder* accepted_pack() {
  static Holder one;
  return &one;
}

thread_local std::string last_fault;
cudnnStatus_t refuse(cudnnStatus_t status, std::string why) {
  last_fault = std::move(why);
  return status;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void*);
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 4;  // floats, 32-bit integers and enumerations
  }
}

template <class T>
Attribute values(cudnnBackendAttributeType_t type, const std::vector<T>& all) {
  Attribute a;
  a.type = type;
  a.count = static_cast<std::int64_t>(all.size());
  a.bytes.resize(all.size() * sizeof(T));
  if (!all.empty()) std::memcpy(a.bytes.data(), all.data(), a.bytes.size());
  return a;
}
Attribute children(std::vector<std::shared_ptr<Descriptor>> all) {
  Attribute a;
  a.type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  a.count = static_cast<std::int64_t>(all.size());
  a.children = std::move(all);
  return a;
}
Attribute child(std::shared_ptr<Descriptor> d) { return children({std::move(d)}); }

struct Engine {
  std::int64_t number = 0;
  std::vector<int> notes;
};
// From this number on they give NaN.
constexpr std::int64_t kFirstUnwanted = 2;

// What a real cuDNN may offer for the graph, in the order of its guess at their times.
std::vector<Engine> engines_of(const Descriptor& graph) {
  const Attribute* ops = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const bool attention =
      ops != nullptr && std::any_of(ops->children.begin(), ops->children.end(), [](const auto& d) {
        return d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
      });
  std::vector<int> unwanted{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  if (!attention)
    unwanted.insert(
        unwanted.end(),
        {CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
         CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
         CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION});
  std::vector<Engine> engines;
  for (const int note : unwanted)
    engines.push_back({kFirstUnwanted + static_cast<std::int64_t>(engines.size()), {note}});
  engines.push_back({1, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}});
  engines.push_back({0, {}});
  return engines;
}

std::shared_ptr<Descriptor> engine_config(const std::shared_ptr<Descriptor>& graph, const Engine& e) {
  auto engine = std::make_shared<Descriptor>();
  engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
  engine->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = child(graph);
  engine->attributes[CUDNN_ATTR_ENGINE_GLOBAL_INDEX] = values<std::int64_t>(CUDNN_TYPE_INT64, {e.number});
  engine->attributes[CUDNN_ATTR_ENGINE_NUMERICAL_NOTE] = values<int>(CUDNN_TYPE_NUMERICAL_NOTE, e.notes);
  engine->attributes[CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE] = values<int>(CUDNN_TYPE_BEHAVIOR_NOTE, {});
  engine->finalized = true;
  auto config = std::make_shared<Descriptor>();
  config->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
  config->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = child(engine);
  config->attributes[CUDNN_ATTR_ENGINECFG_KNOB_CHOICES] = values<void*>(CUDNN_TYPE_BACKEND_DESCRIPTOR, {});
  config->attributes[CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE] =
      values<std::int64_t>(CUDNN_TYPE_INT64, {kWorkspace});
  config->attributes[CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED] = values<std::int32_t>(CUDNN_TYPE_INT32, {0});
  config->finalized = true;
  return config;
}

std::shared_ptr<Descriptor> engine_of_plan(const Descriptor& plan) {
  const auto config = plan.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  return config ? config->child(CUDNN_ATTR_ENGINECFG_ENGINE) : nullptr;
}
std::shared_ptr<Descriptor> graph_of_plan(const Descriptor& plan) {
  const auto engine = engine_of_plan(plan);
  return engine ? engine->child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH) : nullptr;
}

// A plan's kernels are gone with it.
[[noreturn]] void end_late() {
  std::fprintf(stderr,
               "emulated cuDNN: a plan was destroyed before the stream came to what it was run for\n");
  std::abort();
}

// What a descriptor knows of itself once it is complete.
cudnnStatus_t complete(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      if (std::string fault = emu::fault_of(d); !fault.empty())
        return refuse(CUDNN_STATUS_NOT_SUPPORTED, std::move(fault));
      d.attributes[CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT] =
          values<std::int64_t>(CUDNN_TYPE_INT64, {static_cast<std::int64_t>(engines_of(d).size())});
      break;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const auto graph = d.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      if (!graph) return refuse(CUDNN_STATUS_BAD_PARAM, "no graph");
      std::vector<std::shared_ptr<Descriptor>> configs;
      for (const Engine& e : engines_of(*graph)) configs.push_back(engine_config(graph, e));
      d.attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS] = children(std::move(configs));
      break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      // Made from an engine, or from what an earlier plan said of itself.
      if (const auto text = d.values<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); !text.empty()) {
        auto config = emu::from_text({text.begin(), text.end()});
        if (config) d.attributes[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG] = child(std::move(config));
      }
      if (!graph_of_plan(d)) return refuse(CUDNN_STATUS_BAD_PARAM, "no engine");
      const std::string text = emu::to_text(*d.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
      d.attributes[CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION] =
          values<char>(CUDNN_TYPE_CHAR, {text.begin(), text.end()});
      d.attributes[CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE] =
          values<std::int64_t>(CUDNN_TYPE_INT64, {kWorkspace});
      break;
    }
    default:
      break;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

std::size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "the emulated cuDNN refuses";
}
void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  if (max_size == 0) return;
  const std::size_t n = last_fault.copy(message, max_size - 1);
  message[n] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const auto* given = reinterpret_cast<const emu::Stream*>(stream);
  if (given != nullptr) emu::check_in_use(given);
  if (given != nullptr && !emu::is_instant() && emu::device_of(given) != handle->device)
    return refuse(CUDNN_STATUS_BAD_PARAM, "a stream of another device than the handle's");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  if (type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && emu::is_instant()) {
    *descriptor = accepted_pack();
    return CUDNN_STATUS_SUCCESS;
  }
  auto* made = new Holder;
  made->content->type = type;
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (descriptor != accepted_pack()) delete static_cast<Holder*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  if (descriptor == accepted_pack()) return CUDNN_STATUS_SUCCESS;
  Descriptor& d = *holder(descriptor).content;
  if (d.finalized) return refuse(CUDNN_STATUS_NOT_INITIALIZED, "set after finalize");
  Attribute a;
  a.type = type;
  a.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* others = static_cast<const cudnnBackendDescriptor_t*>(elements);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!holder(others[i]).content->finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is not finalized, in another one");
      a.children.push_back(holder(others[i]).content);
    }
  } else if (count > 0) {
    const auto* bytes = static_cast<const char*>(elements);
    a.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  }
  d.attributes[name] = std::move(a);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       std::int64_t room, std::int64_t* count, void* elements) {
  const Attribute* a = holder(descriptor).content->find(name);
  if (a == nullptr) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that was not set");
  if (a->type != type) return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute of another type");
  if (count != nullptr) *count = a->count;
  if (elements == nullptr) return CUDNN_STATUS_SUCCESS;
  const std::int64_t n = std::min(room, a->count);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    auto* others = static_cast<cudnnBackendDescriptor_t*>(elements);
    for (std::int64_t i = 0; i < n; ++i) holder(others[i]).content = a->children[static_cast<std::size_t>(i)];
  } else if (n > 0) {
    std::memcpy(elements, a->bytes.data(), static_cast<std::size_t>(n) * size_of(type));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == accepted_pack()) return CUDNN_STATUS_SUCCESS;
  Descriptor& d = *holder(descriptor).content;
  if (d.finalized) return CUDNN_STATUS_SUCCESS;
  const cudnnStatus_t status = complete(d);
  d.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  if (variant_pack == accepted_pack()) {
    ++emu::counters().kernels;
    return CUDNN_STATUS_SUCCESS;
  }
  const std::shared_ptr<Descriptor>& content = holder(plan).content;
  const auto graph = graph_of_plan(*content);
  const Descriptor& pack = *holder(variant_pack).content;
  if (!graph || handle->stream == nullptr)
    return refuse(CUDNN_STATUS_BAD_PARAM, "no plan, or no stream was set");
  if (!content->finalized || !pack.finalized)
    return refuse(CUDNN_STATUS_BAD_PARAM, "a plan or a pack that is not finalized");
  const auto uids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids.size() != addresses.size()) return refuse(CUDNN_STATUS_BAD_PARAM, "ids and addresses differ");
  std::map<std::int64_t, void*> pointers;
  for (std::size_t i = 0; i < uids.size(); ++i) pointers[uids[i]] = addresses[i];
  void* workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  if (!emu::is_device_address(workspace)) return refuse(CUDNN_STATUS_BAD_PARAM, "no workspace");
  emu::Operands operands;
  const auto engine = engine_of_plan(*content)->value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
  operands.tensor_cores = engine == 1;
  operands.unwanted = engine >= kFirstUnwanted;
  if (std::string fault = emu::take_operands(*graph, pointers, operands); !fault.empty())
    return refuse(CUDNN_STATUS_BAD_PARAM, std::move(fault));
  ++emu::counters().kernels;
  emu::enqueue(
      reinterpret_cast<emu::Stream*>(handle->stream),
      [graph, operands, workspace, alive = std::weak_ptr(content)] {
        if (alive.expired()) end_late();
        std::memset(emu::reach(workspace), 0xFF, kWorkspace);
        emu::run_graph(*graph, operands);
        return true;
      },
      emu::Kind::Plan);
  return CUDNN_STATUS_SUCCESS;
}

// The frontend refers to these; nothing of ours uses them.
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t*) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t) { return CUDNN_STATUS_NOT_SUPPORTED; }
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int,
                                         const int*) {
  return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnReorderFilterAndBias(cudnnHandle_t, const cudnnFilterDescriptor_t, cudnnReorderType_t,
                                        const void*, void*, int, const void*, void*) {
  return CUDNN_STATUS_NOT_SUPPORTED;
}
