#include "runtime/progress.h"

namespace tessera {
namespace {

// Per thread: workers of a parallel region have none, so only the thread that owns the messages moves them.
thread_local ProgressFunction installed = nullptr;

}  // namespace

void set_progress_function(ProgressFunction f) { installed = f; }
ProgressFunction progress_function() { return installed; }

}  // namespace tessera
