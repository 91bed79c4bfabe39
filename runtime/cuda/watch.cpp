#include "runtime/cuda/watch.h"

#include <deque>
#include <mutex>

#include "runtime/error.h"

namespace tessera::cuda {
namespace {

struct Watched {
  const char* op;
  std::function<std::string(std::int64_t)> refusal;
  std::unique_ptr<StagingBuffer> buffer;
  Event over;

  bool found() const { return static_cast<const volatile std::int64_t*>(buffer->data())[0] != 0; }
  std::int64_t value() const { return static_cast<const volatile std::int64_t*>(buffer->data())[1]; }
};

struct Pending {
  std::mutex mutex;
  std::deque<Watched> list;
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
  }
  if (op != nullptr) TS_FAIL(Usage, op, "{}", text);
}

}  // namespace tessera::cuda
