#include "ops/cuda/precision.h"

#include <atomic>

#include "runtime/environment.h"

namespace tessera::cuda {
namespace {

std::atomic<bool>& flag() {
  static std::atomic<bool> allowed{environment_switch("TESSERA_TF32", false)};
  return allowed;
}

}  // namespace

bool tf32_allowed() { return flag().load(std::memory_order_relaxed); }
void allow_tf32(bool allowed) { flag().store(allowed, std::memory_order_relaxed); }

}  // namespace tessera::cuda
