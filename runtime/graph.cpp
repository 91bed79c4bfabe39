#include "runtime/graph.h"

#include <array>
#include <atomic>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera {
namespace {

constexpr const char* kOp = "CudaGraph";
constexpr Device kDevice = Device::Cuda;

GraphBackend& backend() {
  static GraphBackend instance;
  return instance;
}

std::atomic<GraphCapture*> under_way{nullptr};

}  // namespace

void set_graph_backend(Device device, GraphBackend b) {
  TS_CHECK(device == kDevice, "set_graph_backend", "device {} was given, allowed is {}", name_of(device),
           name_of(kDevice));
  backend() = b;
}

void refuse_in_capture(const char* op, const char* what, const char* instead) {
  if (GraphCapture::current() == nullptr) [[likely]]
    return;
  TS_FAIL(Unsupported, detail::current_op != nullptr ? detail::current_op : op,
          "{} while a CUDA graph is captured; {}", what, instead);
}

void refuse_wait_in_capture(const char* op) {
  refuse_in_capture(op, "the host would have to read what the device has worked out",
                    "allowed is work that stays on the device: read values after replay()");
}

GraphPool::GraphPool(int id)
    : held_(new int(id), [](const int* held) {
        release_private_pool(kDevice, *held);
        delete held;
      }) {}

Array GraphCapture::input(const Dims& sizes, DType dtype) const {
  end_private_pool(kDevice);
  Array memory = Array::empty(sizes, dtype, kDevice);
  begin_private_pool(kDevice, pool_.id());
  return memory;
}

GraphCapture* GraphCapture::current() {
  GraphCapture* capture = under_way.load(std::memory_order_acquire);
  return capture != nullptr && capture->thread_ == std::this_thread::get_id() ? capture : nullptr;
}

void GraphCapture::begin(const GraphPool& pool) {
  require_device(kOp, kDevice);
  TS_CHECK(state_ == State::Empty, kOp, "capture_begin() was called twice; reset() empties a graph");
  GraphCapture* none = nullptr;
  thread_ = std::this_thread::get_id();
  TS_CHECK(under_way.compare_exchange_strong(none, this), kOp,
           "another graph is being captured; one capture at a time is allowed");
  try {
    pool_ = pool.id() != 0 ? pool : GraphPool(make_private_pool(kDevice));
    backend().begin();
    begin_private_pool(kDevice, pool_.id());
  } catch (...) {
    under_way.store(nullptr);
    throw;
  }
  state_ = State::Capturing;
}

// The host's state becomes what it was; the device's memory is everybody's again.
void GraphCapture::leave() noexcept {
  end_private_pool(kDevice);
  for (auto f = ended_.rbegin(); f != ended_.rend(); ++f) (*f)();
  ended_.clear();
  under_way.store(nullptr);
  state_ = State::Empty;
  held_.clear();
}

void GraphCapture::end() {
  TS_CHECK(state_ == State::Capturing, kOp, "capture_end() was called without capture_begin()");
  try {
    executable_ = backend().end();
  } catch (...) {
    leave();
    throw;
  }
  leave();
  state_ = State::Captured;
}

void GraphCapture::replay() {
  TS_CHECK(state_ == State::Captured, kOp, "replay() of a graph that holds nothing; capture one first");
  TS_CHECK(under_way.load() == nullptr, kOp, "replay() was called while a graph is captured");
  for (const auto& f : checks_) f();
  for (const auto& f : before_) f();
  backend().launch(executable_);
  for (const auto& f : after_) f();
}

GraphCapture::~GraphCapture() {
  if (state_ == State::Capturing) {
    backend().give_up();
    leave();
  }
  if (executable_ != nullptr) backend().drop(executable_);
}

CudaGraph::CudaGraph() : capture_(std::make_unique<GraphCapture>()) {}
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;

void CudaGraph::capture_begin(const GraphPool& pool) {
  if (!capture_) reset();
  capture_->begin(pool);
}
void CudaGraph::capture_end() {
  if (!capture_) reset();
  try {
    capture_->end();
  } catch (...) {
    reset();
    throw;
  }
}
void CudaGraph::replay() {
  if (!capture_) reset();
  capture_->replay();
}
void CudaGraph::reset() { capture_ = std::make_unique<GraphCapture>(); }
bool CudaGraph::captured() const { return capture_ && capture_->state_ == GraphCapture::State::Captured; }
GraphPool CudaGraph::pool() const { return capture_ ? capture_->pool_ : GraphPool(); }

}  // namespace tessera
