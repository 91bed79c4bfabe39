#include "runtime/device.h"

#include <array>
#include <cstring>

#include "runtime/error.h"

namespace tessera {
namespace {

DeviceBackend& backend_of(Device device) {
  static std::array<DeviceBackend, kDeviceCount> table;
  return table[static_cast<std::size_t>(device)];
}

bool needs_backend(Device device) { return device == Device::Cuda; }

}  // namespace

void set_device_backend(Device device, DeviceBackend backend) { backend_of(device) = backend; }

bool is_available(Device device) {
  if (!needs_backend(device)) return true;
  std::string why;
  const DeviceBackend& backend = backend_of(device);
  return backend.count != nullptr && backend.count(why) > 0;
}

void require_device(const char* op, Device device) {
  if (!needs_backend(device)) return;
  const DeviceBackend& backend = backend_of(device);
  if (backend.count == nullptr)
    TS_FAIL(Unsupported, op, "device {} was given, but this build knows only cpu and meta", name_of(device));
  std::string why;
  if (backend.count(why) == 0)
    TS_FAIL(Unsupported, op, "device {} was given, but this machine has none ({})", name_of(device), why);
}

void select_device(Device device, int local_rank) {
  if (!needs_backend(device)) return;
  const DeviceBackend& backend = backend_of(device);
  if (backend.select == nullptr) return require_device("select_device", device);
  backend.select(local_rank);
}

void copy_bytes(Device device, void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0 || device == Device::Meta) return;
  if (device == Device::Cpu) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
  } else {
    backend_of(device).copy(to, from, bytes);
  }
}

std::unique_ptr<Staging> make_staging(Device device, std::int64_t bytes) {
  return backend_of(device).stage(bytes);
}

std::unique_ptr<DevicePoint> mark_point(Device device) { return backend_of(device).mark(); }

void synchronize(Device device) {
  if (needs_backend(device) && backend_of(device).synchronize != nullptr) backend_of(device).synchronize();
}

Device device_from_name(const char* op, std::string_view name) {
  for (const Device device : {Device::Cpu, Device::Cuda, Device::Meta})
    if (name == name_of(device)) return device;
  TS_FAIL(Usage, op, "device '{}' was given, allowed are cpu, cuda and meta", name);
}

}  // namespace tessera
