#include "ops/cpu/parallel.h"

#include <exception>

#include "runtime/progress.h"
#include "runtime/threads.h"

namespace tessera::cpu {

int threads_for(double flops) { return flops < kParallelFlops ? 1 : thread_count(); }

namespace detail {

void run_pieces(std::int64_t pieces, int threads, const void* body, PieceFunction call) {
  if (threads <= 1 || pieces <= 1) {
    for (std::int64_t i = 0; i < pieces; ++i) {
      call(body, i);
      if (i + 1 < pieces) poll_progress();
    }
    return;
  }
  // An exception must not leave the parallel region; the hook (a broken connection) may throw one. The
  // hook is installed per thread, so only the calling thread moves messages.
  std::exception_ptr error = nullptr;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < pieces; ++i) {
    try {
      call(body, i);
      poll_progress();
    } catch (...) {
#pragma omp critical(tessera_parallel_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace detail

}  // namespace tessera::cpu
