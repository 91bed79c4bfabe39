// Copies, fills and sums of strided arrays on the device. All asynchronous, in the order of the stream.
#pragma once
#include "runtime/cuda/api.h"
#include "runtime/cuda/walk.h"
#include "runtime/dtype.h"

namespace tessera::cuda {

// One operand: element 0 and its type.
struct Elements {
  void* data = nullptr;
  DType dtype = DType::F32;
};

// Conversions are those of the CPU (runtime/copy.h).
void copy_elements(const Walk<2>& walk, Elements to, Elements from, StreamHandle stream);
// Of one dtype; bools are or-ed, bf16 and f16 are added in float, integers wrap around.
void add_elements(const Walk<2>& walk, Elements to, Elements from, StreamHandle stream);
void fill_elements(const Walk<1>& walk, Elements to, double value, StreamHandle stream);

}  // namespace tessera::cuda
