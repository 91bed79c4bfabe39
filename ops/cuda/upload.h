// Tables of the host on the device. Host side; asynchronous.
#pragma once
#include <span>

#include "ops/cuda/number_list.h"
#include "runtime/array.h"
#include "runtime/cuda/staging.h"

namespace tessera::cuda {

template <class T>
Array uploaded(std::span<const T> values) {
  const Array a = Array::empty({std::ssize(values)}, dtype_of<T>(), Device::Cuda);
  if (!values.empty()) copy_to_device(a.raw(), values.data(), a.nbytes(), current_stream());
  return a;
}

// `memory` keeps a table alive; it may go when the kernel is launched.
inline NumberList number_list(std::span<const std::int64_t> values, Array& memory) {
  NumberList list;
  if (values.empty()) return list;
  list.first = values[0];
  list.step = values.size() > 1 ? values[1] - values[0] : 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] == list.first + static_cast<std::int64_t>(i) * list.step) continue;
    memory = uploaded(values);
    list.table = memory.data<std::int64_t>();
    break;
  }
  return list;
}

}  // namespace tessera::cuda
