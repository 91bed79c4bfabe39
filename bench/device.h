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
// Seconds of the device, between two events around what `f` launches.
Spent spent_on_device(const std::function<void()>& f);

}  // namespace tessera::bench
