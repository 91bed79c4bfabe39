// Kernel: the whole of backend dispatch. A row of function pointers, one per device.
//
//   Kernel<void(const MatmulArgs&)> matmul_kernel{"matmul", &cpu::matmul};
//
// A kernel writes into arrays that its caller allocated, so on the meta device it is simply not called.
// Other backends fill their column with `set` when the library starts (CMake picks the file that does so).
#pragma once
#include <array>

#include "runtime/array.h"
#include "runtime/error.h"

namespace tessera {

template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Args...)> {
 public:
  using Function = void (*)(Args...);
  constexpr Kernel(const char* name, Function cpu) : name_(name), table_{cpu, nullptr, nullptr} {}

  void set(Device device, Function f) { table_[static_cast<std::size_t>(device)] = f; }
  bool has(Device device) const { return table_[static_cast<std::size_t>(device)] != nullptr; }
  const char* name() const { return name_; }
  void operator()(Device device, Args... args) const {
    if (device == Device::Meta) return;
    Function f = table_[static_cast<std::size_t>(device)];
    if (f == nullptr) [[unlikely]]
      TS_FAIL(Unsupported, name_, "no kernel for device {}", name_of(device));
    f(args...);
  }

 private:
  const char* name_;
  std::array<Function, kDeviceCount> table_;
};

// Fills one backend's entry of a kernel; also the way in for kernels from outside the library.
template <class... Args>
void register_kernel(Kernel<void(Args...)>& kernel, Device device, void (*f)(Args...)) {
  kernel.set(device, f);
}

}  // namespace tessera
