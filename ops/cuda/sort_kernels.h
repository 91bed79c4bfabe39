// Rows of unsigned keys with their positions in order on the device, equal keys in the order of their
// positions: a radix sort by digits of eight bits that counts without atomics, so that nothing depends on who
// comes first.
#pragma once
#include <cstdint>

#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// Keys [rows, n], u32 or u64 (`wide`), positions [rows, n], u32. Two sets of memory: the passes go from one
// to the other and back.
struct SortRows {
  std::int64_t rows = 0;
  std::int64_t n = 0;
  int bits = 32;  // of the keys, from the lowest, that differ
  bool wide = false;
  void* keys[2] = {};
  std::uint32_t* positions[2] = {};
  std::int32_t* counts = nullptr;  // sort_counts(rows, n)
};
std::int64_t sort_counts(std::int64_t rows, std::int64_t n);
// Sorts what is in set 0; which set has the result follows from n and the bits.
int sorted_set(std::int64_t n, int bits);
void sort_rows(const SortRows& sort, StreamHandle stream);

// Keys of values (ops/cpu/order_key.h) [rows, n] to set 0.
void value_keys(const SortRows& sort, Elements x, bool descending, StreamHandle stream);
// The first k of each row: values [rows, k] of x [rows, n] and their positions (I64).
struct OrderedRows {
  Elements x;
  Elements values;
  void* numbers = nullptr;
  std::int64_t k = 0;
};
void take_ordered(const SortRows& sort, const OrderedRows& rows, StreamHandle stream);
// The middle of each row that is in order, the lower one of two, or the first NaN if there is any: values
// [rows] of x and their positions (I64). `k` is not read.
void take_middle(const SortRows& sort, const OrderedRows& rows, StreamHandle stream);

}  // namespace tessera::cuda
