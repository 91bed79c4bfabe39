// Arrays as rows, and small i64 arrays.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/array.h"

namespace tessera::points {

// [n, ...] as the kernels of rows by number want it: [1, n, columns].
inline Array as_rows(const Array& x) {
  std::int64_t columns = 1;
  for (int d = 1; d < x.dim(); ++d) columns *= x.size(d);
  return x.reshape({1, x.size(0), columns});
}

// 0, 1, ... n - 1.
inline Array counted(std::int64_t n) {
  Array list = Array::empty({n}, DType::I64);
  std::iota(list.data<std::int64_t>(), list.data<std::int64_t>() + n, std::int64_t{0});
  return list;
}
inline std::int64_t sum_of(const Array& list) {
  return std::accumulate(list.data<std::int64_t>(), list.data<std::int64_t>() + list.numel(),
                         std::int64_t{0});
}
// Where runs of such lengths begin, one after another.
inline Array starts_of(const Array& lengths) {
  Array starts = Array::empty({lengths.numel()}, DType::I64);
  std::exclusive_scan(lengths.data<std::int64_t>(), lengths.data<std::int64_t>() + lengths.numel(),
                      starts.data<std::int64_t>(), std::int64_t{0});
  return starts;
}

}  // namespace tessera::points
