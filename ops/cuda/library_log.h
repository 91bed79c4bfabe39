// What cuDNN and cuBLASLt are asked for, call by call, while somebody listens: the bench, which then asks
// them for the same and nothing else.
#pragma once
#include <variant>
#include <vector>

#include "ops/cuda/attention_graph.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/cudnn_graphs.h"

namespace tessera::cuda {

using LibraryCall = std::variant<ConvGraph, AttentionGraph, BlasShape>;

namespace detail {
inline constinit thread_local std::vector<LibraryCall>* listening = nullptr;
}

// Calls of this thread, in their order, while it lives. Not nested.
class LibraryLog {
 public:
  LibraryLog() { detail::listening = &calls_; }
  ~LibraryLog() { detail::listening = nullptr; }
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;
  const std::vector<LibraryCall>& calls() const { return calls_; }

  template <class Asked>
  static void note(const Asked& asked) {
    if (detail::listening != nullptr) detail::listening->emplace_back(asked);
  }

 private:
  std::vector<LibraryCall> calls_;
};

}  // namespace tessera::cuda
