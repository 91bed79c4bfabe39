// Lists of numbers that the host knows and a kernel reads: as two numbers where they rise evenly, which is
// the rule, else as a table on the device.
#pragma once
#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

struct NumberList {
  std::int64_t first = 0;
  std::int64_t step = 0;
  const std::int64_t* table = nullptr;  // on the device
  TS_DEVICE std::int64_t operator[](std::int64_t i) const {
    return table != nullptr ? Ptr<const std::int64_t>(table)[i] : first + i * step;
  }
};

}  // namespace tessera::cuda
