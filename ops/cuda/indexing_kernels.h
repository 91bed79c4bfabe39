// Rows and elements by number on the device (ops/cpu/indexing.h).
#pragma once
#include <array>

#include "ops/cuda/sort_kernels.h"

namespace tessera::cuda {

struct Strided3 {
  Elements elements;
  std::int64_t size[3] = {};
  std::int64_t stride[3] = {};  // in elements
};

// numbers: i64 [m].
void take_rows(const Strided3& to, const Strided3& from, const std::int64_t* numbers, StreamHandle stream);
// numbers of elements: a stride for each dim.
void take_elements(const Strided3& to, const Strided3& from, const Strided3& numbers, StreamHandle stream);

// Terms by the row they are added to. `lists` lists of m numbers each, one for all columns of the terms or
// one for each ([a, b]); keys are u32, n for a number that names nothing.
struct TermLists {
  SortRows sort;  // rows: lists, n: m
  std::int64_t n = 0;
  std::uint32_t* starts = nullptr;  // [lists, n + 1]: where the terms of a row begin, in the sorted positions
};
void number_keys(const TermLists& lists, const Strided3& numbers, StreamHandle stream);
void find_starts(const TermLists& lists, StreamHandle stream);
// to += the terms of each row, in their order; every element is one thread's.
void put_terms(const Strided3& to, const Strided3& from, const TermLists& lists, StreamHandle stream);
// The same without lists, for few terms in many columns: every column is one thread's.
void put_elements(const Strided3& to, const Strided3& from, const Strided3& numbers, StreamHandle stream);

// Rows [lo, hi) lie at row `local` and on.
struct HeldRun {
  std::int64_t lo, hi, local;
};
constexpr int kRunsInLaunch = 8;
struct OwnNumbers {
  const std::int64_t* numbers = nullptr;
  std::int64_t* own = nullptr;
  std::int64_t count = 0;
  std::int64_t n = 0;         // rows of the whole
  std::int64_t padding = -1;  // names nothing
  bool all = true;            // all rows are here
  bool from_end = false;      // numbers below 0 count from the end
  int runs = 0;
  HeldRun few[kRunsInLaunch] = {};
  const std::int64_t* many = nullptr;  // [runs, 3], where there are more
  std::int64_t* wrong = nullptr;  // {1, a wrong number} if there is one, the 1 last; null: they are all right
};
void own_numbers(const OwnNumbers& args, StreamHandle stream);

}  // namespace tessera::cuda
