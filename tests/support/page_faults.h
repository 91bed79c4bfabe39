// Pages of memory that the system has handed to this process.
#pragma once
#include <sys/resource.h>

#include <cstdint>

namespace tessera {

// Since the process began; those that were read from disk are not among them.
inline std::int64_t page_faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

}  // namespace tessera
