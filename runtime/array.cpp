#include "runtime/array.h"

#include <vector>

#include "runtime/allocator.h"
#include "runtime/copy.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera {

std::string_view name_of(Device device) {
  switch (device) {
    case Device::Cpu:
      return "cpu";
    case Device::Cuda:
      return "cuda";
    case Device::Meta:
      return "meta";
  }
  return "?";
}

Storage::Storage(void* data, std::int64_t bytes, Device device, std::function<void(void*)> deleter)
    : data_(data), bytes_(bytes), device_(device), deleter_(std::move(deleter)) {
  // An empty deleter stands for the allocator's.
  if (!deleter_) deleter_ = [](void*) {};
}

Storage::Storage(std::int64_t bytes, Device device)
    : data_(allocate_bytes(device, bytes)), bytes_(bytes), device_(device) {}

Storage::~Storage() {
  if (deleter_) {
    deleter_(data_);
  } else {
    free_bytes(device_, data_, bytes_);
  }
}

namespace {

void check_sizes(const char* op, const Dims& sizes) {
  for (std::int64_t size : sizes)
    TS_CHECK(size >= 0, op, "sizes {} were given, allowed are 0 and more along each dim", sizes.str());
}

bool contiguous(const Dims& sizes, const Dims& strides, std::int64_t numel) {
  if (numel == 0) return true;
  std::int64_t expected = 1;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

// No gaps and no overlap in some order of dims, all strides forward.
bool dense(const Dims& sizes, const Dims& strides, std::int64_t numel) {
  if (numel == 0) return true;
  std::int64_t expected = 1;
  std::array<bool, Dims::kMax> used{};
  for (int step = 0; step < sizes.size(); ++step) {
    int next = -1;
    for (int d = 0; d < sizes.size() && next < 0; ++d)
      if (!used[static_cast<std::size_t>(d)] && sizes[d] > 1 && strides[d] == expected) next = d;
    if (next < 0) break;
    used[static_cast<std::size_t>(next)] = true;
    expected *= sizes[next];
  }
  return expected == numel;
}

struct Reach {  // elements before and after element 0
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};
Reach reach_of(const Dims& sizes, const Dims& strides) {
  Reach r;
  for (int d = 0; d < sizes.size(); ++d) (strides[d] < 0 ? r.lo : r.hi) += strides[d] * (sizes[d] - 1);
  return r;
}

}  // namespace

Array::Array(std::shared_ptr<Storage> storage, std::int64_t offset, const Dims& sizes, const Dims& strides,
             DType dtype)
    : storage_(std::move(storage)),
      offset_(offset),
      sizes_(sizes),
      strides_(strides),
      numel_(numel_of(sizes)),
      dtype_(dtype),
      contiguous_(tessera::contiguous(sizes, strides, numel_)) {}

bool Array::is_dense() const { return contiguous_ || dense(sizes_, strides_, numel_); }

Array Array::empty(const Dims& sizes, DType dtype, Device device) {
  check_sizes("empty", sizes);
  std::int64_t bytes = 0;
  TS_CHECK(!__builtin_mul_overflow(numel_of(sizes), size_of(dtype), &bytes), "empty",
           "{} of {} has too many bytes", sizes.str(), name_of(dtype));
  return {std::make_shared<Storage>(bytes, device), 0, sizes, contiguous_strides(sizes), dtype};
}

Array Array::empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Device device) {
  check_sizes("empty_strided", sizes);
  const std::int64_t numel = numel_of(sizes);
  TS_CHECK(strides.size() == sizes.size() && dense(sizes, strides, numel), "empty_strided",
           "strides {} do not lay out shape {} without gaps and overlaps", strides.str(), sizes.str());
  return {std::make_shared<Storage>(numel * size_of(dtype), device), 0, sizes, strides, dtype};
}

Array Array::full(const Dims& sizes, double value, DType dtype, Device device) {
  Array out = empty(sizes, dtype, device);
  fill(out, value);
  return out;
}

Array Array::zeros(const Dims& sizes, DType dtype, Device device) { return full(sizes, 0.0, dtype, device); }

Array Array::from(std::span<const double> values, const Dims& sizes, DType dtype) {
  check_sizes("from", sizes);
  TS_CHECK(static_cast<std::int64_t>(values.size()) == numel_of(sizes), "from",
           "{} values were given, shape {} takes {}", values.size(), sizes.str(), numel_of(sizes));
  Array out = empty(sizes, dtype);
  // Read only: the wrapped values are the source of a copy.
  copy_strided(out, wrap(const_cast<double*>(values.data()), sizes, contiguous_strides(sizes), DType::F64));
  return out;
}

Array Array::wrap(void* data, const Dims& sizes, const Dims& strides, DType dtype,
                  std::function<void(void*)> deleter, Device device) {
  check_sizes("wrap", sizes);
  TS_CHECK(strides.size() == sizes.size(), "wrap", "{} strides were given for {} dims", strides.size(),
           sizes.size());
  const std::int64_t numel = numel_of(sizes);
  TS_CHECK(data != nullptr || numel == 0 || device == Device::Meta, "wrap",
           "no memory (nullptr) was given for shape {}", sizes.str());
  // The storage starts at the lowest address that the strides reach, so that views can be checked against it.
  const Reach reach = numel == 0 ? Reach{0, -1} : reach_of(sizes, strides);
  const std::int64_t item = size_of(dtype);
  void* base = reach.lo == 0 ? data : static_cast<char*>(data) + reach.lo * item;
  std::function<void(void*)> release = [](void*) {};
  if (deleter) release = [d = std::move(deleter), data](void*) { d(data); };
  auto storage =
      std::make_shared<Storage>(base, (reach.hi - reach.lo + 1) * item, device, std::move(release));
  return {std::move(storage), -reach.lo, sizes, strides, dtype};
}

Array Array::as_strided(const Dims& sizes, const Dims& strides, std::int64_t offset) const {
  check_sizes("as_strided", sizes);
  TS_CHECK(strides.size() == sizes.size(), "as_strided", "{} strides were given for {} dims", strides.size(),
           sizes.size());
  if (numel_of(sizes) > 0) {
    const Reach reach = reach_of(sizes, strides);
    const std::int64_t capacity = storage_->bytes() / size_of(dtype_);
    TS_CHECK(offset + reach.lo >= 0 && offset + reach.hi < capacity, "as_strided",
             "shape {} with strides {} at offset {} reaches elements {} to {}, the storage has 0 to {}",
             sizes.str(), strides.str(), offset, offset + reach.lo, offset + reach.hi, capacity - 1);
  }
  return {storage_, offset, sizes, strides, dtype_};
}

Array Array::contiguous() const { return contiguous_ ? *this : clone(); }

Array Array::clone() const {
  Array out = empty(sizes_, dtype_, device());
  copy_strided(out, *this);
  return out;
}

Array Array::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Array out = empty(sizes_, dtype, device());
  copy_strided(out, *this);
  return out;
}

Array Array::to(Device device) const {
  if (device == this->device()) return *this;
  require_device("to", device);
  Array out = empty(sizes_, dtype_, device);
  copy_strided(out, *this);
  return out;
}

void Array::copy_(const Array& source) const {
  TS_CHECK(defined() && source.defined(), "copy_", "the {} is undefined", defined() ? "source" : "target");
  const Array from = source.sizes() == sizes_ ? source : source.expand(sizes_);
  bump_version();
  if (same_view(*this, from)) return;
  // Overlapping views: elements would be overwritten before they are read.
  copy_strided(*this, may_overlap(*this, from) ? from.clone() : from);
}

void Array::fill_(double value) const {
  fill(*this, value);
  bump_version();
}

double Array::at(std::int64_t linear_index) const {
  TS_CHECK(device() != Device::Meta, "at", "an array on {} has no elements to read", name_of(device()));
  TS_CHECK(linear_index >= 0 && linear_index < numel_, "at", "element {} was asked for, shape {} has 0 to {}",
           linear_index, sizes_.str(), numel_ - 1);
  std::int64_t position = 0;
  for (int d = dim() - 1; d >= 0; --d) {
    position += linear_index % sizes_[d] * strides_[d];
    linear_index /= sizes_[d];
  }
  double value = 0;
  const OpScope scope("at");
  copy_strided(wrap(&value, {}, {}, DType::F64), {storage_, offset_ + position, {}, {}, dtype_});
  return value;
}

std::vector<double> Array::to_vector() const {
  std::vector<double> out(static_cast<std::size_t>(numel_));
  TS_CHECK(device() != Device::Meta, "to_vector", "an array on {} has no elements to read",
           name_of(device()));
  const OpScope scope("to_vector");
  copy_strided(wrap(out.data(), sizes_, contiguous_strides(sizes_), DType::F64), *this);
  return out;
}

}  // namespace tessera
