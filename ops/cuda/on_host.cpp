#include "ops/cuda/on_host.h"

namespace tessera::cuda {

Array HostCopies::of(const Array& a) {
  if (!a.defined() || a.device() != Device::Cuda) return a;
  const auto view = [&](const Array& bytes) {
    // The bytes seen as the array's type, then as its view.
    const std::int64_t n = bytes.numel() / size_of(a.dtype());
    return Array::wrap(bytes.raw(), {n}, {1}, a.dtype(), [keep = bytes](void*) {})
        .as_strided(a.sizes(), a.strides(), a.offset());
  };
  for (const Copy& copy : copies_)
    if (copy.device == a.storage()) return view(copy.host);
  Copy copy;
  copy.device = a.storage();
  const std::int64_t n = a.storage()->bytes();
  copy.whole = Array::wrap(
      a.storage()->data(), {n}, {1}, DType::Bool, [keep = a](void*) {}, Device::Cuda);
  copy.host = copy.whole.to(Device::Cpu);
  copy.unchanged = copy.host.clone();
  copies_.push_back(copy);
  return view(copy.host);
}

void HostCopies::write_back() const {
  for (const Copy& copy : copies_) {
    const auto n = static_cast<std::size_t>(copy.host.nbytes());
    if (n > 0 && std::memcmp(copy.host.raw(), copy.unchanged.raw(), n) != 0)
      copy_strided(copy.whole, copy.host);
  }
}

}  // namespace tessera::cuda
