// Runs the blocks of a kernel one after another: its threads as a plain loop where they never wait for each
// other, else as fibers that take turns at every barrier.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera::emulated {

// What one thread of a block sees.
struct ThreadOfBlock {
  std::int64_t block = 0;
  std::int64_t blocks = 1;
  int thread = 0;
  int threads = 1;
  char* shared = nullptr;  // the block's
  // 32 lanes of 16 bytes per warp, for values handed from lane to lane.
  char* lanes = nullptr;
  // Goes on when all threads of the block have come here.
  void barrier() const;
  void* fiber = nullptr;
};

struct BlockShape {
  std::int64_t blocks = 1;
  int threads = 1;
  int shared_bytes = 0;
};

// Told of every fence that a kernel sets for the host, if there is one; for tests.
inline void (*fence_met)() = nullptr;
// Whether CUDA takes a launch of this shape, of a kernel that is compiled for at most `bound` threads a block
// and has not asked for more shared memory than all have. What it does not is the thread's last error.
bool takes_launch(const BlockShape& shape, int bound);

// A kernel that goes to memory by an address that is no multiple of what is read there ends, as it does on a
// device.
[[noreturn]] void end_misaligned(const void* p, std::size_t alignment);
template <class T>
T* aligned(T* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % alignof(T) != 0) end_misaligned(p, alignof(T));
  return p;
}

void run_threads_in_turn(const BlockShape& shape, const std::function<void(const ThreadOfBlock&)>& body);

}  // namespace tessera::emulated
