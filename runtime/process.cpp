#include "runtime/process.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace tessera {
namespace {

// A line such as "VmRSS:     1234 kB".
std::int64_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(field)) return std::strtoll(line.c_str() + field.size(), nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

std::int64_t resident_bytes() { return status_bytes("VmRSS:"); }
std::int64_t peak_resident_bytes() { return status_bytes("VmHWM:"); }

}  // namespace tessera
