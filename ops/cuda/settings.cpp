#include "ops/cuda/settings.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "runtime/environment.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

std::atomic<bool>& cudnn() {
  static std::atomic<bool> allowed{environment_switch("TESSERA_CUDNN", true)};
  return allowed;
}

std::int64_t mebibytes_of(const char* name, const char* otherwise) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const char* text = std::getenv(name);
  const std::string_view given(text == nullptr ? otherwise : text);
  std::int64_t mebibytes = 0;
  const auto [end, error] = std::from_chars(given.begin(), given.end(), mebibytes);
  TS_CHECK(error == std::errc() && end == given.end() && mebibytes >= 0 && mebibytes <= kMost, name,
           "\"{}\" was given, whole numbers from 0 to {} are allowed", given, kMost);
  return mebibytes << 20;
}

std::atomic<std::int64_t>& score_bytes() {
  static std::atomic<std::int64_t> bytes{mebibytes_of("TESSERA_ATTENTION_SCORES", "2048")};
  return bytes;
}

std::atomic<std::int64_t>& workspace_bytes() {
  static std::atomic<std::int64_t> bytes{mebibytes_of("TESSERA_CUDNN_WORKSPACE", "4096")};
  return bytes;
}

}  // namespace

bool cudnn_allowed() { return cudnn().load(std::memory_order_relaxed); }
void allow_cudnn(bool allowed) { cudnn().store(allowed, std::memory_order_relaxed); }

std::int64_t attention_score_bytes() { return score_bytes().load(std::memory_order_relaxed); }
void set_attention_score_bytes(std::int64_t bytes) { score_bytes().store(bytes, std::memory_order_relaxed); }

std::int64_t cudnn_workspace_bytes() { return workspace_bytes().load(std::memory_order_relaxed); }
void set_cudnn_workspace_bytes(std::int64_t bytes) {
  workspace_bytes().store(bytes, std::memory_order_relaxed);
}

}  // namespace tessera::cuda
