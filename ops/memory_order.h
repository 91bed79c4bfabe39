// Arrays laid out in memory like others, whatever the order of their dims. Internal to ops/.
#pragma once
#include "runtime/array.h"

namespace tessera {

// Whether elements share memory.
bool is_expanded(const Array& a);
// Dims from the outermost to the innermost in memory, those of size 1 where their strides put them. Of an
// expanded array: row-major.
Dims memory_order(const Array& a);
// A dense array whose dims lie in this order.
Array empty_in_order(const Dims& order, const Dims& sizes, DType dtype, Device device);
// A dense array of these sizes that lies as the model does, where it has as many dims; else row-major.
Array empty_like(const Array& model, const Dims& sizes, DType dtype);
inline Array empty_like(const Array& model, const Dims& sizes) {
  return empty_like(model, sizes, model.dtype());
}
inline Array full_like(const Array& model, const Dims& sizes, double value) {
  Array a = empty_like(model, sizes);
  a.fill_(value);
  return a;
}

// The same elements as this type, dense, lying as they do (a slice of channels has gaps between its pixels);
// itself if it is so already.
Array as_dense(const Array& a, DType dtype);
inline Array as_dense(const Array& a) { return as_dense(a, a.dtype()); }

}  // namespace tessera
