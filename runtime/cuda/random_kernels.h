// Random values on the device, of elements whose global indices have strides too.
#pragma once
#include "runtime/cuda/copy_kernels.h"
#include "runtime/rng_key.h"

namespace tessera::cuda {

struct RandomElements {
  Walk<3> walk;  // out, in, global index
  void* out = nullptr;
  const void* in = nullptr;
  DType dtype = DType::F32;
  std::int64_t first_index = 0;
  RngKey key;
  RandomKind kind = RandomKind::Uniform;
  double a = 0;  // as RandomFill's (runtime/rng_device.h)
  double b = 1;
  double lo = 0;
  double hi = 0;
};
void fill_random(const RandomElements& elements, StreamHandle stream);

}  // namespace tessera::cuda
