// What a kernel sees of the machine, in the build for the emulated device: g++ compiles the kernels' sources,
// and device memory is reached through its second mapping.
#pragma once
#include <driver_types.h>

#include <cstring>
#include <type_traits>

#include "emulated/blocks.h"
#include "emulated/memory.h"
#include "emulated/streams.h"
#include "runtime/cuda/launch_shape.h"

#define TS_DEVICE inline
#define TS_UNROLL

namespace tessera::cuda {

template <class T>
class Ptr {
 public:
  Ptr() = default;
  Ptr(T* p) : p_(emulated::aligned(p)) {}  // NOLINT(google-explicit-constructor): as a pointer would
  T& operator[](std::int64_t i) const { return *emulated::reach(p_ + i); }
  T& operator*() const { return *emulated::reach(p_); }
  Ptr operator+(std::int64_t n) const { return Ptr(p_ + n); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

class Block {
 public:
  explicit Block(const emulated::ThreadOfBlock& t) : t_(t) {}
  std::int64_t index() const { return t_.block; }
  std::int64_t count() const { return t_.blocks; }
  int thread() const { return t_.thread; }
  int threads() const { return t_.threads; }
  void sync() const { t_.barrier(); }
  template <class T>
  T* shared(std::int64_t offset_bytes = 0) const {
    return emulated::aligned(reinterpret_cast<T*>(t_.shared + offset_bytes));
  }
  template <class T>
  T shuffle_xor(T value, int mask) const {
    return from_lane(value, (t_.thread % 32) ^ mask);
  }
  template <class T>
  T shuffle(T value, int lane) const {
    return from_lane(value, lane);
  }

 private:
  // All threads of the block take part. Lanes beyond the end of the block give back one's own value.
  template <class T>
  T from_lane(T value, int lane) const {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
    const int other = t_.thread / 32 * 32 + lane;
    std::memcpy(t_.lanes + t_.thread * 16, &value, sizeof(T));
    t_.barrier();
    T got = value;
    if (other < t_.threads) std::memcpy(&got, t_.lanes + other * 16, sizeof(T));
    t_.barrier();
    return got;
  }
  const emulated::ThreadOfBlock& t_;
};

TS_DEVICE std::int64_t global_thread(const Block& block) {
  return block.index() * block.threads() + block.thread();
}

TS_DEVICE void fence_for_host() {
  if (emulated::fence_met != nullptr) emulated::fence_met();
}

template <class Kernel>
void launch(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream) {
  if (shape.blocks == 0) return;
  const emulated::BlockShape blocks{grid_of(shape), shape.threads, shape.shared_bytes};
  if (!emulated::takes_launch(blocks, Kernel::kThreads)) return;
  ++emulated::counters().kernels;
  if (emulated::is_instant()) return;
  emulated::enqueue(reinterpret_cast<emulated::Stream*>(stream), [kernel, blocks] {
    if constexpr (Kernel::kSyncs) {
      emulated::run_threads_in_turn(blocks, [&](const emulated::ThreadOfBlock& t) { kernel(Block(t)); });
    } else {
      emulated::ThreadOfBlock t{0, blocks.blocks, 0, blocks.threads};
      for (t.block = 0; t.block < blocks.blocks; ++t.block)
        for (t.thread = 0; t.thread < blocks.threads; ++t.thread) kernel(Block(t));
    }
    return true;
  });
}

// Memory that was given back is not a number from there on, in the order of the stream.
constexpr bool kPoisons = true;
inline void poison(void* data, std::int64_t bytes, cudaStream_t stream) {
  emulated::poison(data, static_cast<std::size_t>(bytes), reinterpret_cast<emulated::Stream*>(stream));
}

}  // namespace tessera::cuda
