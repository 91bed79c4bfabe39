// What the bench asks of a device beside the library's own interface; in a build without a backend there is
// none (device_none.cpp).
#pragma once
#include <string>

#include "bench/measure.h"

namespace tessera::bench {

// The device of this process, in one line. Of the emulated one it says that times mean nothing.
std::string device_line();
// Nothing takes long on a real one.
bool device_is_emulated();
// How often the host has waited for it.
std::int64_t device_waits();
void wait_for_device();

// What cuDNN and cuBLASLt were asked for, again, with memory of their own: the time that is left where
// nothing else is done.
struct LibraryCalls {
  int count = 0;
  std::function<void()> launch;  // one after another
  std::function<void()> replay;  // as one CUDA graph; empty where there is no call
};
// Of this thread in `f`, which is run once.
LibraryCalls library_calls_of(const std::function<void()>& f);

// Seconds of the device, between two events around what `f` launches.
Spent spent_on_device(const std::function<void()>& f);

}  // namespace tessera::bench
