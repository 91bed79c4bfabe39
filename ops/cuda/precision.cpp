#include "ops/cuda/precision.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tessera::cuda {
namespace {

std::atomic<bool>& flag() {
  static std::atomic<bool> allowed = [] {
    const char* text = std::getenv("TESSERA_TF32");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return allowed;
}

}  // namespace

bool tf32_allowed() { return flag().load(std::memory_order_relaxed); }
void allow_tf32(bool allowed) { flag().store(allowed, std::memory_order_relaxed); }

}  // namespace tessera::cuda
