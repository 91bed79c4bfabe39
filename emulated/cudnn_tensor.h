// Tensors of a graph: what their descriptors say, and their elements as doubles.
#pragma once
#include <string>

#include "emulated/cudnn_descriptors.h"

namespace tessera::emulated {

using List = std::vector<std::int64_t>;
// In row-major order of a tensor's sizes.
using Values = std::vector<double>;

struct Tensor {
  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  List size;
  List stride;  // in elements
  std::int64_t alignment = 1;
  bool is_virtual = false;   // has no memory
  bool is_by_value = false;  // one number in the caller's memory
  std::int64_t numel() const;
};
Tensor tensor_of(const Descriptor& d);
// What is wrong with it or not known here; empty if nothing is.
std::string fault_of(const Tensor& t);

// Elements at an address of the device.
Values load(const Tensor& t, void* data);
void store(const Tensor& t, void* data, const Values& values);
// As they are after they went through the tensor's type, if that is one of 16 bits; exact otherwise.
void round_as(const Tensor& t, Values& values);
// The number that `host` points to.
double number_at(const Tensor& t, const void* host);

// f(i, offset) for a tensor's elements in row-major order of its sizes.
template <class F>
void for_each_offset(const List& size, const List& stride, const F& f) {
  List at(size.size(), 0);
  std::int64_t n = 1;
  for (auto s : size) n *= s;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    f(static_cast<std::size_t>(i), offset);
    for (std::size_t d = size.size(); d-- > 0;) {
      offset += stride[d];
      if (++at[d] < size[d]) break;
      offset -= stride[d] * size[d];
      at[d] = 0;
    }
  }
}

}  // namespace tessera::emulated
