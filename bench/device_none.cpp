// A build without a device. Programs refuse `--device cuda` before they come here.
#include "bench/device.h"
#include "bench/groups.h"

namespace tessera::bench {

std::string device_line() { return "no device"; }
bool device_is_emulated() { return false; }
std::int64_t device_waits() { return 0; }
void wait_for_device() {}
LibraryCalls library_calls_of(const std::function<void()>& f) {
  f();
  return {};
}
Spent spent_on_device(const std::function<void()>& f) { return spent_in(f); }

void device_kernels(const Settings& settings, Report&) { require_device("device_kernels", settings.device); }

}  // namespace tessera::bench
