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

// Calls of this thread, in their order, while it lives. Not nested.
class LibraryLog {
 public:
  LibraryLog() { listening_ = &calls_; }
  ~LibraryLog() { listening_ = nullptr; }
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;
  const std::vector<LibraryCall>& calls() const { return calls_; }

  template <class Asked>
  static void note(const Asked& asked) {
    if (listening_ != nullptr) listening_->emplace_back(asked);
  }

 private:
  std::vector<LibraryCall> calls_;
  static inline constinit thread_local std::vector<LibraryCall>* listening_ = nullptr;
};

}  // namespace tessera::cuda
