#include "runtime/cuda/watch.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera::cuda {
namespace {

struct Watched {
  const char* op;
  std::function<std::string(std::int64_t)> refusal;
  std::unique_ptr<StagingBuffer> buffer;
  Event over;  // of one that runs once

  void forget() const { static_cast<volatile std::int64_t*>(buffer->data())[0] = 0; }
  bool found() const { return static_cast<const volatile std::int64_t*>(buffer->data())[0] != 0; }
  std::int64_t value() const { return static_cast<const volatile std::int64_t*>(buffer->data())[1]; }
};

struct Pending {
  std::mutex mutex;
  std::deque<Watched> list;
  // Of graphs: looked at whenever the host has waited, for as long as the graph lives.
  std::vector<std::weak_ptr<Watched>> captured;
};
// Never destroyed: the driver may be gone before static variables are.
Pending& pending() {
  static auto* instance = new Pending;
  return *instance;
}

}  // namespace

ValueWatch::ValueWatch(const char* op, std::function<std::string(std::int64_t)> refusal)
    : op_(op), refusal_(std::move(refusal)), buffer_(std::make_unique<StagingBuffer>(16)) {
  slot()[0] = 0;
  slot()[1] = 0;
}

void ValueWatch::launched(StreamHandle stream) {
  if (GraphCapture* capture = GraphCapture::current()) {
    const std::shared_ptr<Watched> watched(new Watched{op_, std::move(refusal_), std::move(buffer_), {}},
                                           [](Watched* w) {
                                             StagingBuffer::retire(w->buffer.release());
                                             delete w;
                                           });
    capture->keep(watched);
    const std::lock_guard lock(pending().mutex);
    pending().captured.push_back(watched);
    return;
  }
  Watched watched{op_, std::move(refusal_), std::move(buffer_), {}};
  watched.over.record(stream);
  watched.buffer->in_use_until_now(stream);
  const std::lock_guard lock(pending().mutex);
  std::deque<Watched>& list = pending().list;
  // A run that never waits must not collect them. What was found stays until the host waits: when that is
  // follows from the program, not from the clock.
  while (!list.empty() && list.front().over.done() && !list.front().found()) list.pop_front();
  list.push_back(std::move(watched));
}

void check_watches() {
  std::string text;
  const char* op = nullptr;
  {
    const std::lock_guard lock(pending().mutex);
    std::deque<Watched>& list = pending().list;
    while (!list.empty() && list.front().over.done()) {
      if (op == nullptr && list.front().found()) {
        op = list.front().op;
        text = list.front().refusal(list.front().value());
      }
      list.pop_front();
    }
    std::vector<std::weak_ptr<Watched>>& captured = pending().captured;
    captured.erase(
        std::remove_if(captured.begin(), captured.end(), [](const auto& w) { return w.expired(); }),
        captured.end());
    for (const std::weak_ptr<Watched>& w : captured) {
      const std::shared_ptr<Watched> watched = w.lock();
      if (op != nullptr || !watched || !watched->found()) continue;
      op = watched->op;
      text = watched->refusal(watched->value());
      watched->forget();
    }
  }
  if (op != nullptr) TS_FAIL(Usage, op, "{}", text);
}

}  // namespace tessera::cuda
