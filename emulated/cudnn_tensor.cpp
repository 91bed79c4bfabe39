#include "emulated/cudnn_tensor.h"

#include <algorithm>
#include <type_traits>

#include "emulated/memory.h"
#include "emulated/mutation.h"
#include "runtime/dtype.h"

namespace tessera::emulated {
namespace {

// f(pointer of the tensor's type).
template <class F>
void with_type(cudnnDataType_t type, void* data, const F& f) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return f(static_cast<double*>(data));
    case CUDNN_DATA_BFLOAT16:
      return f(static_cast<bf16*>(data));
    case CUDNN_DATA_HALF:
      return f(static_cast<f16*>(data));
    case CUDNN_DATA_INT32:
      return f(static_cast<std::int32_t*>(data));
    default:
      return f(static_cast<float*>(data));
  }
}

template <class T>
T converted(double v) {
  if constexpr (kHalf<T>) {
    return T(static_cast<float>(v));
  } else {
    return static_cast<T>(v);
  }
}

}  // namespace

std::int64_t Tensor::numel() const {
  std::int64_t n = 1;
  for (auto s : size) n *= s;
  return n;
}

Tensor tensor_of(const Descriptor& d) {
  Tensor t;
  t.uid = d.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.type = d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  t.size = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.stride = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.alignment = d.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  t.is_virtual = d.value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
  t.is_by_value = d.value<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
  return t;
}

std::string fault_of(const Tensor& t) {
  if (t.size.empty() || t.stride.size() != t.size.size()) return "a tensor without its sizes and strides";
  for (auto s : t.size)
    if (s < 1) return "a size below 1";
  switch (t.type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_HALF:
      break;
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_BOOLEAN:
      if (t.is_virtual || t.is_by_value) break;
      [[fallthrough]];
    default:
      return "a data type that the stand-in does not know";
  }
  return t.is_by_value && t.numel() != 1 ? "more than one number by value" : "";
}

Values load(const Tensor& t, void* data) {
  Values out(static_cast<std::size_t>(t.numel()));
  List stride = t.stride;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < stride.size(); ++d) last += (t.size[d] - 1) * stride[d];
  static const bool fault = mutated("stride");
  if (fault && stride.size() > 1) ++stride[1];
  with_type(t.type, reach(data), [&](const auto* p) {
    for_each_offset(t.size, stride, [&](std::size_t i, std::int64_t offset) {
      out[i] = static_cast<double>(p[std::min(offset, last)]);
    });
  });
  return out;
}

void store(const Tensor& t, void* data, const Values& values) {
  with_type(t.type, reach(data), [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    for_each_offset(t.size, t.stride,
                    [&](std::size_t i, std::int64_t offset) { p[offset] = converted<T>(values[i]); });
  });
}

void round_as(const Tensor& t, Values& values) {
  if (t.type != CUDNN_DATA_HALF && t.type != CUDNN_DATA_BFLOAT16) return;
  with_type(t.type, nullptr, [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    for (double& v : values) v = static_cast<double>(converted<T>(v));
  });
}

double number_at(const Tensor& t, const void* host) {
  double value = 0;
  with_type(t.type, const_cast<void*>(host), [&](const auto* p) { value = static_cast<double>(*p); });
  return value;
}

}  // namespace tessera::emulated
