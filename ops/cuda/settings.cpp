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

std::atomic<std::int64_t>& score_bytes() {
  static std::atomic<std::int64_t> bytes{[] {
    constexpr const char* kName = "TESSERA_ATTENTION_SCORES";
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    const char* text = std::getenv(kName);
    const std::string_view given(text == nullptr ? "2048" : text);
    std::int64_t mebibytes = 0;
    const auto [end, error] = std::from_chars(given.begin(), given.end(), mebibytes);
    TS_CHECK(error == std::errc() && end == given.end() && mebibytes >= 0 && mebibytes <= kMost, kName,
             "\"{}\" was given, whole numbers from 0 to {} are allowed", given, kMost);
    return mebibytes << 20;
  }()};
  return bytes;
}

}  // namespace

bool cudnn_allowed() { return cudnn().load(std::memory_order_relaxed); }
void allow_cudnn(bool allowed) { cudnn().store(allowed, std::memory_order_relaxed); }

std::int64_t attention_score_bytes() { return score_bytes().load(std::memory_order_relaxed); }
void set_attention_score_bytes(std::int64_t bytes) { score_bytes().store(bytes, std::memory_order_relaxed); }

}  // namespace tessera::cuda
