// What the library's host code sees of kernels' headers in a build with nvcc: their parameters, nothing to
// run.
#pragma once
#include <cstdint>

#include "runtime/cuda/launch_shape.h"

struct CUstream_st;

#define TS_DEVICE inline
#define TS_UNROLL

namespace tessera::cuda {

template <class T>
class Ptr {
 public:
  Ptr() = default;
  Ptr(T* p) : p_(p) {}  // NOLINT(google-explicit-constructor): as a pointer would
  // Only declared: for small functions of parameters, which kernels call.
  T& operator[](std::int64_t i) const;

 private:
  T* p_ = nullptr;
};

// Memory that was given back is written over on the emulated device alone.
constexpr bool kPoisons = false;
inline void poison(void* /*data*/, std::int64_t /*bytes*/, CUstream_st* /*stream*/) {}

}  // namespace tessera::cuda
