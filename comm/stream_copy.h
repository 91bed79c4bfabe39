// A copy for another core to read: past the caches of this one.
#pragma once
#include <cstdint>

namespace tessera {

// Copies to memory on a cache line. Ordinary stores must first take every line from the core that read it
// last, which takes several times as long as the copy where the two cores share no cache; stores past the
// caches do not wait for it. Ordered before whatever is stored afterwards. Which file defines it is chosen by
// CMake.
void stream_copy(char* to, const char* from, std::int64_t bytes);

}  // namespace tessera
