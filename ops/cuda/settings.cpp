#include "ops/cuda/settings.h"

#include <atomic>

#include "runtime/environment.h"

namespace tessera::cuda {
namespace {

std::atomic<bool>& cudnn() {
  static std::atomic<bool> allowed{environment_switch("TESSERA_CUDNN", true)};
  return allowed;
}

}  // namespace

bool cudnn_allowed() { return cudnn().load(std::memory_order_relaxed); }
void allow_cudnn(bool allowed) { cudnn().store(allowed, std::memory_order_relaxed); }

}  // namespace tessera::cuda
