// How much the caches of a core hold.
#pragma once
#include <cstdint>

namespace tessera {

// Bytes of the largest cache that a core reaches, shared or not; where the system does not tell, the largest
// number. Of the system's files: what sysconf() says is of the whole package on some machines.
std::int64_t last_level_cache();

}  // namespace tessera
