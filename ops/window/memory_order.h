// Arrays laid out in memory like others, whatever the order of their dims. Internal to ops/.
#pragma once
#include "runtime/array.h"

namespace tessera {

// Dims from the outermost to the innermost in memory, those of size 1 where their strides put them. Of an
// expanded array, whose elements share memory: row-major.
Dims memory_order(const Array& a);
// A dense array whose dims lie in this order.
Array empty_in_order(const Dims& order, const Dims& sizes, DType dtype, Device device);
inline Array empty_like_order(const Array& model, const Dims& sizes) {
  return empty_in_order(memory_order(model), sizes, model.dtype(), model.device());
}
inline Array full_like_order(const Array& model, const Dims& sizes, double value) {
  Array a = empty_like_order(model, sizes);
  a.fill_(value);
  return a;
}

}  // namespace tessera
