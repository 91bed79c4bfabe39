// What a kernel sees of the machine, compiled by nvcc.
#pragma once
#include <cuda_runtime.h>

#include "runtime/cuda/launch_shape.h"

#define TS_DEVICE __device__ __forceinline__
// Before a loop over an array that is to stay in registers, where nvcc would leave the loop, and so the array
// in memory.
#define TS_UNROLL _Pragma("unroll")

namespace tessera::cuda {

template <class T>
class Ptr {
 public:
  Ptr() = default;
  __host__ __device__ Ptr(T* p) : p_(p) {}
  __device__ __forceinline__ T& operator[](std::int64_t i) const { return p_[i]; }
  __device__ __forceinline__ T& operator*() const { return *p_; }
  __device__ __forceinline__ Ptr operator+(std::int64_t n) const { return Ptr(p_ + n); }
  __device__ __forceinline__ explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

extern __shared__ __align__(16) char shared_memory[];

class Block {
 public:
  __device__ __forceinline__ std::int64_t index() const { return blockIdx.x; }
  __device__ __forceinline__ std::int64_t count() const { return gridDim.x; }
  __device__ __forceinline__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  template <class T>
  __device__ __forceinline__ T* shared(std::int64_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(shared_memory + offset_bytes);
  }
  template <class T>
  __device__ __forceinline__ T shuffle_xor(T value, int mask) const {
    return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  }
  template <class T>
  __device__ __forceinline__ T shuffle(T value, int lane) const {
    return __shfl_sync(0xFFFFFFFFU, value, lane);
  }
};

TS_DEVICE std::int64_t global_thread(const Block& block) {
  return block.index() * block.threads() + block.thread();
}

TS_DEVICE void fence_for_host() { __threadfence_system(); }

// How many blocks a multiprocessor is to hold at least; 0: as nvcc likes.
template <class Kernel>
constexpr int least_blocks() {
  if constexpr (requires { Kernel::kLeastBlocks; }) return Kernel::kLeastBlocks;
  return 0;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, least_blocks<Kernel>())
    kernel_entry(const __grid_constant__ Kernel kernel) {
  kernel(Block{});
}

// An error of the launch is seen by the next check (runtime/cuda/api.h).
template <class Kernel>
void launch(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream) {
  if (shape.blocks == 0) return;
  kernel_entry<Kernel><<<grid_of(shape), static_cast<unsigned>(shape.threads),
                         static_cast<std::size_t>(shape.shared_bytes), stream>>>(kernel);
}

}  // namespace tessera::cuda
