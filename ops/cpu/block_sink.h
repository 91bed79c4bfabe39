// Contiguous blocks of results on their way to memory.
//
// Results that the caches cannot hold until somebody reads them go past the caches: from a block that is in
// the cache, so that kernels need not know of it. See runtime/stream_copy.h. The bytes are the same either
// way.
#pragma once
#include "ops/cpu/rows.h"
#include "ops/cpu/workspace.h"
#include "runtime/stream_copy.h"

namespace tessera::cpu {

// Whether results go past the caches: where they, or what they are a part of, have as many bytes as the
// largest cache, or as were set, and take no operand's place, which is in a cache as it was just read.
bool past_caches(const Array& results, std::initializer_list<const Array*> operands);
// Bytes from which on they do, for tests and measurements; 0: what the machine's caches suggest.
void set_past_caches_from(std::int64_t bytes);

template <class S>
class BlockSink {
 public:
  using T = Compute<S>;
  // `largest` is the length of a block at most. Whoever stores `past` the caches ends with stream_fence().
  BlockSink(S* data, bool past, std::int64_t largest, Workspace& scratch)
      : data_(data), past_(past), block_(past || kConverts ? scratch.take<T>(largest) : nullptr) {
    if (past && kConverts) rounded_ = scratch.take<S>(largest);
  }
  T* place(std::int64_t offset) const {
    return block_ == nullptr ? row_out<S>(data_ + offset, 1, block_) : block_;
  }
  // What lies at place(offset) is complete.
  void done(std::int64_t offset, std::int64_t n, const T* row) const {
    if (!past_) return row_done<S>(data_ + offset, 1, n, row);
    const void* from = row;
    if constexpr (kConverts) {
      store_block<S>(rounded_, 1, row, n);
      from = rounded_;
    }
    stream_copy(reinterpret_cast<char*>(data_ + offset), static_cast<const char*>(from),
                n * static_cast<std::int64_t>(sizeof(S)));
  }

 private:
  static constexpr bool kConverts = !std::is_same_v<S, T>;
  S* data_;
  bool past_;
  T* block_;
  S* rounded_ = nullptr;
};

}  // namespace tessera::cpu
