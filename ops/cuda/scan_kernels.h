// Running sums, the largest element's place, and moments of parts joined, on the device (ops/reduce/scan.h,
// extremum_index.h and moments_merge.h say what is computed).
#pragma once
#include "ops/cuda/number_list.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// x [outer, n, inner], contiguous; `pieces` of n. firsts has one number more than there are pieces.
struct ScanData {
  std::int64_t outer = 0;
  std::int64_t n = 0;
  std::int64_t inner = 0;
  std::int64_t pieces = 0;
  NumberList firsts;
  Elements x;
  std::int64_t longest = 0;  // piece
  std::int64_t rows() const { return pieces * outer * inner; }
};
void piece_sums(const ScanData& data, void* sums, StreamHandle stream);
// starts: null or of every piece.
struct RunningSums {
  ScanData data;
  void* out = nullptr;
  const void* starts = nullptr;
  bool reverse = false;
};
void running_sums(const RunningSums& args, StreamHandle stream);

struct Extrema {
  std::int64_t outer = 0;
  std::int64_t n = 0;
  std::int64_t inner = 0;
  std::int64_t* key = nullptr;  // [outer, inner], as index
  std::int64_t* index = nullptr;
  Elements x;
  NumberList positions;
  NumberList offsets;  // by row of outer
  std::int64_t none = 0;
  bool largest = true;
};
void extrema(const Extrema& args, StreamHandle stream);

struct MergeExtrema {
  std::int64_t parts = 0;
  std::int64_t rows = 0;
  std::int64_t* key = nullptr;
  std::int64_t* index = nullptr;
  const std::int64_t* keys = nullptr;  // [parts, rows], as indices
  const std::int64_t* indices = nullptr;
};
void merge_extrema(const MergeExtrema& args, StreamHandle stream);

// counts [parts, kinds]: a few in the arguments, more on the device.
struct MergeMoments {
  static constexpr int kCounts = 64;
  std::int64_t parts = 0;
  std::int64_t rows = 0;
  std::int64_t kinds = 1;
  void* mean = nullptr;
  void* rest = nullptr;
  void* m2 = nullptr;
  Elements from;  // [parts, 3, rows], of the same type
  double few[kCounts] = {};
  const double* more = nullptr;
};
void merge_moments(const MergeMoments& args, StreamHandle stream);

}  // namespace tessera::cuda
