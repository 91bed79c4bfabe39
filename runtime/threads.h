// How many threads the kernels of this process use.
//
// The library never takes more cores than its share: all ranks on a host compute at the same time, so the
// default is OMP_NUM_THREADS where set, else the cores that the host's ranks may run on divided by the ranks,
// and never more than this process may run on.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace tessera {

int thread_count();
// Refuses n < 1. Counts for every thread of the process that starts a parallel region from now on.
void set_thread_count(int n);
// The comm layer says how many ranks share this host, and how many cores these may run on all together (ranks
// that are bound to different sockets: more than one of them may). A count given by the user
// (set_thread_count or OMP_NUM_THREADS) stays.
void set_default_threads(int local_ranks, int cores);
// Cores that the operating system lets this process run on.
int available_cores();

// Below this many elements waking other threads costs more than they save.
constexpr std::int64_t kParallelElements = 65536;

// Calls f(lo, hi) for pieces that cover [0, jobs), on several threads when `elements` (the work in all) is
// large. The pieces are whole ranges, one per thread; results must not depend on where they are cut.
template <class F>
void parallel_ranges(std::int64_t jobs, std::int64_t elements, F f) {
  const std::int64_t threads =
      elements < kParallelElements ? 1 : std::min<std::int64_t>(thread_count(), jobs);
  if (threads <= 1) {
    if (jobs > 0) f(std::int64_t{0}, jobs);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t me = omp_get_thread_num();
    const std::int64_t lo = jobs * me / team;
    const std::int64_t hi = jobs * (me + 1) / team;
    if (lo < hi) f(lo, hi);
  }
}

}  // namespace tessera
