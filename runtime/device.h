// Devices other than the CPU: whether this build and machine have one, which one this process drives, and
// waiting for it. A backend registers itself when the library starts; the CPU build has none.
//
// Work on such a device is asynchronous: a call returns when its kernels are in the compute stream. Reading a
// value on the host (Array::at, to_vector, a copy to host memory) waits for it.
#pragma once
#include <memory>

#include "runtime/array.h"

namespace tessera {

// Host memory on the way to or from a device (page-locked, from a pool).
class Staging {
 public:
  Staging() = default;
  virtual ~Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  virtual char* data() const = 0;
  // Starts to copy what lies at `from` on the device, after all that was launched before.
  virtual void fetch(const void* from) = 0;
  // Whether that copy is over.
  virtual bool ready() const = 0;
  // Starts to copy to `to` on the device, before all that is launched later. The buffer may go meanwhile.
  virtual void deliver(void* to) = 0;
};

// A point in the order of what this process has given a device.
class DevicePoint {
 public:
  DevicePoint() = default;
  virtual ~DevicePoint() = default;
  DevicePoint(const DevicePoint&) = delete;
  DevicePoint& operator=(const DevicePoint&) = delete;
  // Whether the device has come there.
  virtual bool reached() const = 0;
};

struct DeviceBackend {
  // How many there are; 0 and the reason in `why` where none can be used.
  int (*count)(std::string& why) = nullptr;
  void (*select)(int local_rank) = nullptr;
  void (*synchronize)() = nullptr;
  // Both on the device; asynchronous.
  void (*copy)(void* to, const void* from, std::int64_t bytes) = nullptr;
  std::unique_ptr<Staging> (*stage)(std::int64_t bytes) = nullptr;
  std::unique_ptr<DevicePoint> (*mark)() = nullptr;
};
void set_device_backend(Device device, DeviceBackend backend);

bool is_available(Device device);
// Refuses a device that this build or machine does not have, with the reason; names the caller.
void require_device(const char* op, Device device);
// The rank that is `local_rank`-th on its host drives device local_rank modulo their number, from the first
// use of the device on; until then nothing is opened. Refuses another one than is in use. Nothing to do for
// the CPU.
void select_device(Device device, int local_rank);
// Within one device's memory; asynchronous where that is not the CPU's. May overlap on the CPU.
void copy_bytes(Device device, void* to, const void* from, std::int64_t bytes);
std::unique_ptr<Staging> make_staging(Device device, std::int64_t bytes);
// Reached when all has run that was launched before this call.
std::unique_ptr<DevicePoint> mark_point(Device device);
// Waits until the device has done all that this process gave it.
void synchronize(Device device);
// "cpu", "cuda" or "meta"; refuses other names.
Device device_from_name(const char* op, std::string_view name);

}  // namespace tessera
