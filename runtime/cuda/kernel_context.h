// The small world in which kernels for the device are written, once for both compilers.
//
// A kernel is a struct: its members are the parameters, its call operator is what one thread does.
//
//   struct Fill : Independent {
//     Ptr<float> out; float value; std::int64_t n;
//     TS_DEVICE void operator()(const Block& block) const {
//       const std::int64_t i = global_thread(block);
//       if (i < n) out[i] = value;
//     }
//   };
//   launch(Fill{{}, p, 1.0F, n}, one_each(n), current_stream());
//
// nvcc makes a kernel of it; in the build for the emulated device (emulated/) g++ runs the same code, threads
// as a loop or, where they wait for each other, as fibers. Which of the two `tessera_cuda_port.h` is meant
// CMake says.
//   Block          index(), count(), thread(), threads(), sync(), shuffle_xor(), shuffle(), shared<T>()
//   Ptr<T>         a pointer into device memory
//   fence_for_host()  what a thread wrote before is in the host's memory before what it writes after
//   launch(...)    asynchronous, in the stream's order
// No result may depend on the number of threads, on lanes or on the order of blocks. Products and sums are
// not contracted (--fmad=false, -ffp-contract=off): std::fma where a fused one is meant.
#pragma once
#include <cmath>
#include <cstdint>

#include "tessera_cuda_port.h"

namespace tessera::cuda {

// Threads that never wait for each other.
struct Independent {
  static constexpr bool kSyncs = false;
  static constexpr int kThreads = 256;  // at most
};
// Threads of a block that meet at barriers and hand values from lane to lane. All of them reach every one.
struct Cooperative {
  static constexpr bool kSyncs = true;
  static constexpr int kThreads = 256;
};

}  // namespace tessera::cuda
