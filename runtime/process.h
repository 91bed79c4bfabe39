// What the operating system says about this process.
#pragma once
#include <cstdint>

namespace tessera {

// Bytes of real memory now and at most so far (all threads); 0 where the system does not say.
std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();

}  // namespace tessera
