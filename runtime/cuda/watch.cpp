#include "runtime/cuda/watch.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
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

  std::atomic_ref<std::int64_t> number(int i) const {
    return std::atomic_ref(static_cast<std::int64_t*>(buffer->data())[i]);
  }
  void forget() const { number(0).store(0, std::memory_order_relaxed); }
  // A graph that runs may write it now: the kernel sets the flag after the value.
  bool found() const { return number(0).load(std::memory_order_acquire) != 0; }
  std::int64_t value() const { return number(1).load(std::memory_order_relaxed); }
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

constexpr std::size_t kMostWatched = 64;

// Of those that have run, the first one that found something stays until the program waits for a value: when
// that is follows from the program, not from the clock. Answers how many stay.
std::size_t forget_finished(std::deque<Watched>& list) {
  std::size_t kept = 0;
  while (kept < list.size() && list[kept].over.done()) {
    if (kept == 0 && list.front().found()) {
      kept = 1;
    } else {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept));
    }
  }
  return kept;
}

// A run that never waits must not collect them: where the device is far behind, the oldest is taken out and
// waited for, without the lock.
void add(Watched watched) {
  std::optional<Watched> oldest;
  std::size_t kept = 0;
  {
    const std::lock_guard lock(pending().mutex);
    std::deque<Watched>& list = pending().list;
    kept = forget_finished(list);
    if (list.size() >= kMostWatched) {
      oldest = std::move(list[kept]);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept));
    }
    list.push_back(std::move(watched));
  }
  if (!oldest) return;
  oldest->over.wait();
  if (kept > 0 || !oldest->found()) return;
  const std::lock_guard lock(pending().mutex);
  pending().list.push_front(std::move(*oldest));
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
  add(std::move(watched));
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
