// Small lists of numbers as arrays. Internal to ops/.
#pragma once
#include <span>

#include "runtime/array.h"

namespace tessera {

// I64, in host memory.
inline Array numbers_of(std::span<const std::int64_t> values) {
  Array out = Array::empty({static_cast<std::int64_t>(values.size())}, DType::I64);
  std::copy(values.begin(), values.end(), out.data<std::int64_t>());
  return out;
}

}  // namespace tessera
