// What the environment says of the emulated device. All of it is read when the process starts: what is wrong
// ends the process with one line, as a setting that is taken for another would give a run that shows nothing.
#pragma once
#include <cstdint>

namespace tessera::emulated {

struct Settings {
  bool instant = false;
  std::uint64_t devices = 0;  // 0: one of this process's own
  std::uint64_t memory = std::uint64_t{8} << 30;
  double patience = 120;  // seconds
  bool cuda_aware_mpi = false;
};
const Settings& settings();
// Of the order of streams; read when it is asked for, as test programs set what they draw.
std::uint64_t seed_setting();

}  // namespace tessera::emulated
