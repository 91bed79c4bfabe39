// Kernels that have no version of their own for the device: the arrays come to the host, the CPU's kernel
// works, and what it changed goes back. Right, and slow: the host waits for the device. docs/gpu.md lists
// which these are.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "ops/cuda/fields.h"
#include "runtime/copy.h"

namespace tessera::cuda {

// Host copies of the storages that some arrays of the device lie in. Arrays that share memory share its copy.
class HostCopies {
 public:
  // The same view of the copy; an array that is not on the device as it is.
  Array of(const Array& a);
  // What differs from what was fetched goes back.
  void write_back() const;

 private:
  struct Copy {
    std::shared_ptr<Storage> device;
    Array whole;      // bytes on the device
    Array host;       // bytes
    Array unchanged;  // bytes, as fetched
  };
  std::vector<Copy> copies_;
};

template <auto F, class Args>
void run_on_host(const Args& args) {
  HostCopies copies;
  Args host = args;
  for_each_array(host, [&](Array& a) { a = copies.of(a); });
  F(host);
  copies.write_back();
}

// The same for kernels that take three arrays.
template <auto F>
void run_three_on_host(const Array& a, const Array& b, const Array& c) {
  HostCopies copies;
  F(copies.of(a), copies.of(b), copies.of(c));
  copies.write_back();
}

}  // namespace tessera::cuda
