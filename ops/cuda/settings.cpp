#include "ops/cuda/settings.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "runtime/error.h"

namespace tessera::cuda {
namespace {

bool from_environment(const char* name, bool otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view given(text);
  TS_CHECK(given == "0" || given == "1", name, "\"{}\" was given, allowed are 0 and 1", given);
  return given == "1";
}

std::atomic<bool>& cudnn() {
  static std::atomic<bool> allowed{from_environment("TESSERA_CUDNN", true)};
  return allowed;
}

}  // namespace

bool cudnn_allowed() { return cudnn().load(std::memory_order_relaxed); }
void allow_cudnn(bool allowed) { cudnn().store(allowed, std::memory_order_relaxed); }

}  // namespace tessera::cuda
