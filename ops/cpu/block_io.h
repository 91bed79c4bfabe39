// Blocks of strided memory or of types of 16 bits as contiguous numbers of the type that kernels compute in,
// and back.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cpu/simd/tables.h"
#include "runtime/dtype.h"

namespace tessera::cpu {

inline constexpr std::int64_t kBlock =
    1024;  // three float blocks fit the first-level cache with room to spare

template <class S>
using Compute = std::conditional_t<kHalf<S>, float, S>;

// The part of a table for one computing type.
template <class T, class Table>
const auto& blocks_of(const Table& table) {
  if constexpr (std::is_same_v<T, double>) {
    return table.f64;
  } else {
    return table.f32;
  }
}

// out[i] = x[i * stride], converted.
template <class S>
void load_block(Compute<S>* out, const S* x, std::int64_t stride, std::int64_t n) {
  if constexpr (kHalf<S>) {
    const PointwiseTable& table = pointwise_table();
    const auto convert = std::is_same_v<S, bf16> ? table.from_bf16 : table.from_f16;
    if (stride == 1) return convert(out, reinterpret_cast<const std::uint16_t*>(x), n);
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<Compute<S>>(x[i * stride]);
}
// x[i * stride] = in[i], rounded.
template <class S>
void store_block(S* x, std::int64_t stride, const Compute<S>* in, std::int64_t n) {
  if constexpr (kHalf<S>) {
    const PointwiseTable& table = pointwise_table();
    const auto convert = std::is_same_v<S, bf16> ? table.to_bf16 : table.to_f16;
    if (stride == 1) return convert(reinterpret_cast<std::uint16_t*>(x), in, n);
  }
  for (std::int64_t i = 0; i < n; ++i) x[i * stride] = static_cast<S>(in[i]);
}

// Reads blocks of a run. Contiguous memory is handed out as it lies, an expanded element is spread once.
template <class S>
class BlockReader {
 public:
  using T = Compute<S>;
  BlockReader(const S* x, std::int64_t stride) : x_(x), stride_(stride) {}
  const T* read(std::int64_t at, std::int64_t n) {
    if constexpr (std::is_same_v<S, T>) {
      if (stride_ == 1) return x_ + at;
    }
    if (stride_ == 0) {
      if (filled_ < n) std::fill(buffer_ + filled_, buffer_ + n, static_cast<T>(*x_));
      filled_ = std::max(filled_, n);
      return buffer_;
    }
    load_block(buffer_, x_ + at * stride_, stride_, n);
    return buffer_;
  }

 private:
  const S* x_;
  std::int64_t stride_;
  std::int64_t filled_ = 0;
  alignas(64) T buffer_[kBlock];
};

// The place for a block of results, and its way back into memory.
template <class S>
class BlockWriter {
 public:
  using T = Compute<S>;
  BlockWriter(S* x, std::int64_t stride) : x_(x), stride_(stride) {}
  T* place(std::int64_t at) {
    if constexpr (std::is_same_v<S, T>) {
      if (stride_ == 1) return x_ + at;
    }
    return buffer_;
  }
  void write(std::int64_t at, std::int64_t n) {
    if constexpr (std::is_same_v<S, T>) {
      if (stride_ == 1) return;
    }
    store_block(x_ + at * stride_, stride_, buffer_, n);
  }

 private:
  S* x_;
  std::int64_t stride_;
  alignas(64) T buffer_[kBlock];
};

}  // namespace tessera::cpu
