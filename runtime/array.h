// Array: strided memory on one device. No gradient, no mesh: all that a kernel sees.
//
// Handles are cheap to copy and share one Storage. A storage either belongs to the caching allocator or
// wraps the caller's memory together with a deleter. Strides are in elements and may be 0 (expanded).
// Storage carries a version that every write through the public API increases; autograd compares it.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "runtime/dtype.h"
#include "runtime/shape.h"

namespace tessera {

// Meta allocates and computes nothing but counts.
enum class Device : std::uint8_t { Cpu, Cuda, Meta };
constexpr int kDeviceCount = 3;
std::string_view name_of(Device device);

class Storage {
 public:
  Storage(void* data, std::int64_t bytes, Device device, std::function<void(void*)> deleter);
  Storage(std::int64_t bytes, Device device);  // from the caching allocator
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  // False for memory of the caller.
  bool from_allocator() const { return !deleter_; }
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Device device_;
  std::atomic<std::uint32_t> version_{0};
  std::function<void(void*)> deleter_;  // empty: the allocator's
};

class Array {
 public:
  Array() = default;
  static Array empty(const Dims& sizes, DType dtype, Device device = Device::Cpu);
  // Same sizes in memory order given by `strides` (dense, any permutation).
  static Array empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Device device);
  static Array zeros(const Dims& sizes, DType dtype, Device device = Device::Cpu);
  static Array full(const Dims& sizes, double value, DType dtype, Device device = Device::Cpu);
  // Row-major copy of host values, converted to `dtype`.
  static Array from(std::span<const double> values, const Dims& sizes, DType dtype);
  // The caller's memory; `deleter(data)` runs when the last handle goes (may be empty: borrowed).
  static Array wrap(void* data, const Dims& sizes, const Dims& strides, DType dtype,
                    std::function<void(void*)> deleter = {}, Device device = Device::Cpu);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  const Dims& sizes() const { return sizes_; }
  const Dims& strides() const { return strides_; }
  int dim() const { return sizes_.size(); }
  std::int64_t size(int d) const { return sizes_[d]; }
  std::int64_t stride(int d) const { return strides_[d]; }
  std::int64_t numel() const { return numel_; }
  std::int64_t nbytes() const { return numel_ * size_of(dtype_); }
  bool is_contiguous() const { return contiguous_; }
  // Dense in some order of dims: no gaps, no overlap.
  bool is_dense() const;

  void* raw() const { return static_cast<char*>(storage_->data()) + offset_ * size_of(dtype_); }
  template <class T>
  T* data() const {
    return static_cast<T*>(storage_->data()) + offset_;
  }
  std::int64_t offset() const { return offset_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  std::uint32_t version() const { return storage_->version(); }
  void bump_version() const { storage_->bump(); }

  // Views: no copy, same storage.
  Array as_strided(const Dims& sizes, const Dims& strides, std::int64_t offset) const;  // offset: absolute
  Array slice(int dim, std::int64_t start, std::int64_t length, std::int64_t step = 1) const;
  Array box(const Dims& lo, const Dims& extent) const;
  Array permute(const Dims& order) const;
  Array transpose(int a, int b) const;
  Array unsqueeze(int dim) const;
  Array squeeze(int dim) const;           // size must be 1
  Array expand(const Dims& sizes) const;  // size-1 and leading dims, stride 0
  // A view with `sizes` where the strides allow it, else a row-major copy viewed so.
  Array reshape(const Dims& sizes) const;
  // The same elements in row-major order; itself if it already is.
  Array contiguous() const;
  Array clone() const;          // row-major copy
  Array to(DType dtype) const;  // itself if equal
  // The same elements, row-major, on another device (runtime/device.h); itself if it is there.
  Array to(Device device) const;
  // Elementwise conversion and broadcast of `source` into this array; bumps the version.
  void copy_(const Array& source) const;
  void fill_(double value) const;
  void zero_() const { fill_(0.0); }
  // Element (row-major index) as double; waits for a device. For tests and printing.
  double at(std::int64_t linear_index) const;
  std::vector<double> to_vector() const;

 private:
  Array(std::shared_ptr<Storage> storage, std::int64_t offset, const Dims& sizes, const Dims& strides,
        DType dtype);
  std::shared_ptr<Storage> storage_;
  std::int64_t offset_ = 0;
  Dims sizes_;
  Dims strides_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::F32;
  bool contiguous_ = true;
};

}  // namespace tessera
