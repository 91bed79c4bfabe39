#include "runtime/threads.h"

#include <sched.h>

#include <atomic>
#include <cstdlib>

#include "runtime/error.h"

namespace tessera {
namespace {

// OMP_NUM_THREADS may be a list, one entry per nesting level; the first one is ours. 0: not set or not a
// number.
int threads_from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return 0;
  const long value = std::strtol(text, nullptr, 10);
  return value >= 1 && value <= 4096 ? static_cast<int>(value) : 0;
}

int default_threads(int local_ranks, int cores) {
  const int told = threads_from_environment();
  return told > 0 ? told : std::clamp(cores / local_ranks, 1, available_cores());
}

std::atomic<int> chosen{0};  // 0: not decided yet
std::atomic<bool> by_user{false};

void apply(int n) {
  chosen.store(n, std::memory_order_relaxed);
  omp_set_num_threads(n);  // for parallel regions that do not ask thread_count(), such as those of libraries
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return std::max(1, omp_get_num_procs());
  return std::max(1, CPU_COUNT(&set));
}

int thread_count() {
  int n = chosen.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads(1, available_cores());
    apply(n);
  }
  return n;
}

void set_thread_count(int n) {
  TS_CHECK(n >= 1, "set_thread_count", "{} threads were asked for, allowed are 1 and more", n);
  by_user = true;
  apply(n);
}

void set_default_threads(int local_ranks, int cores) {
  TS_CHECK(local_ranks >= 1 && cores >= 1, "set_default_threads",
           "{} ranks on {} cores of this host were given, allowed are 1 and more", local_ranks, cores);
  if (!by_user) apply(default_threads(local_ranks, cores));
}

}  // namespace tessera
