// Blocks of the ranks combined in rank order on the device: comm/reduce.h there.
#pragma once
#include <cstdint>

#include "runtime/cuda/api.h"
#include "runtime/cuda/combine.h"
#include "runtime/dtype.h"

namespace tessera::cuda {

// As many pointers as a kernel's parameters hold.
constexpr int kMostBlocks = 448;

struct Blocks {
  DType dtype = DType::F32;
  Combine op = Combine::Sum;
  const void* block[kMostBlocks] = {};
  int blocks = 0;
  void* out = nullptr;  // may be one of the blocks
  std::int64_t count = 0;
};
void combine_blocks(const Blocks& blocks, StreamHandle stream);

}  // namespace tessera::cuda
