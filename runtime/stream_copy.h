// Copies past the caches of this core.
//
// For another core to read: ordinary stores must first take every line from the core that read it last, which
// takes several times as long as the copy where the two cores share no cache. For results that no cache could
// hold until they are read: ordinary stores read every line before they overwrite it, and what they leave in
// the cache drives out operands. Which file defines them is chosen by CMake.
#pragma once
#include <cstdint>

namespace tessera {

// Not ordered with what is stored afterwards: whoever lets others read ends with stream_fence().
void stream_copy(char* to, const char* from, std::int64_t bytes);
void stream_fence();
bool has_stream_copy();  // false: stream_copy() is an ordinary copy

}  // namespace tessera
