#include "ops/memory_order.h"

#include "runtime/copy.h"

namespace tessera {

bool is_expanded(const Array& a) {
  for (int d = 0; d < a.dim(); ++d)
    if (a.stride(d) == 0 && a.size(d) > 1) return true;
  return false;
}

Dims memory_order(const Array& a) {
  Dims order;
  for (int d = 0; d < a.dim(); ++d) order.push_back(d);
  if (a.is_contiguous() || is_expanded(a)) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t p, std::int64_t q) {
    return a.stride(static_cast<int>(p)) > a.stride(static_cast<int>(q));
  });
  return order;
}

Array empty_in_order(const Dims& order, const Dims& sizes, DType dtype, Device device) {
  Dims strides = Dims::filled(sizes.size(), 1);
  std::int64_t next = 1;
  for (int i = order.size() - 1; i >= 0; --i) {
    const int d = static_cast<int>(order[i]);
    strides[d] = next;
    next *= std::max<std::int64_t>(1, sizes[d]);
  }
  return Array::empty_strided(sizes, strides, dtype, device);
}

Array empty_like(const Array& model, const Dims& sizes, DType dtype) {
  if (model.is_contiguous() || model.dim() != sizes.size()) return Array::empty(sizes, dtype, model.device());
  if (model.sizes() == sizes && model.is_dense())
    return Array::empty_strided(sizes, model.strides(), dtype, model.device());
  return empty_in_order(memory_order(model), sizes, dtype, model.device());
}

Array as_dense(const Array& a, DType dtype) {
  if (a.dtype() == dtype && a.is_dense()) return a;
  Array out = empty_like(a, a.sizes(), dtype);
  copy_strided(out, a);
  return out;
}

}  // namespace tessera
