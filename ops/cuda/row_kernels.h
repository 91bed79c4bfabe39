// Softmax, layer norm, root-mean-square norm and sums of exponentials on the device: one row at a time. What
// is computed is that of ops/cpu/softmax.h, norm.h, rms_norm.h and exp_rows.h; sums run in double.
#pragma once
#include "ops/cuda/column_cuts.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// Rows of n elements of up to three operands at any strides; the first is written.
struct RowElements {
  Walk<3> rows;
  std::int64_t n = 0;
  std::int64_t along[3] = {};  // strides within a row
  Elements out;
  Elements a;
  Elements b;
};
void softmax_rows(const RowElements& rows, bool log, StreamHandle stream);
void softmax_backward_rows(const RowElements& rows, bool log, StreamHandle stream);

// In what follows data are [rows, cols], contiguous, of `dtype`; statistics of its accumulating type. Null:
// not given, not wanted.
struct RowSizes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::F32;
};
struct LayerNormRows {
  RowSizes sizes;
  void* y = nullptr;
  void* mean = nullptr;
  void* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  double eps = 0;
};
void layer_norm_rows(const LayerNormRows& args, StreamHandle stream);

// dweight and dbias need `partial`, 2 cuts.numbers() doubles; layer norm's dweight `left` too, a number of
// the statistics' type a row.
struct NormBackwardRows {
  RowSizes sizes;
  void* dx = nullptr;
  void* dweight = nullptr;
  void* dbias = nullptr;  // of layer norm
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* mean = nullptr;  // of layer norm
  const void* rstd = nullptr;
  const void* weight = nullptr;
  const void* dots = nullptr;  // of the other
  double count = 1;            // of the other
  ColumnCuts cuts;
  double* partial = nullptr;
  void* left = nullptr;
};
void layer_norm_backward_rows(const NormBackwardRows& args, StreamHandle stream);
void rms_norm_backward_rows(const NormBackwardRows& args, StreamHandle stream);

// Layer norm over parts of longer rows (ops/cpu/norm_parts.h). sums: written by the first, read by the
// second.
struct NormPartRows {
  RowSizes sizes;
  void* dx = nullptr;
  void* dweight = nullptr;
  void* dbias = nullptr;
  const void* dy = nullptr;
  const void* x = nullptr;
  const double* mean = nullptr;
  const void* rstd = nullptr;
  const void* weight = nullptr;
  void* sums = nullptr;
  double count = 1;
  ColumnCuts cuts;
  double* partial = nullptr;  // as above
};
void layer_norm_part_sums(const NormPartRows& args, StreamHandle stream);
void layer_norm_part_gradient(const NormPartRows& args, StreamHandle stream);

// Sums over rows of x² (dy null), or of dy weight x.
struct RowDots {
  RowSizes sizes;
  void* out = nullptr;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
};
void row_dots(const RowDots& args, StreamHandle stream);

struct RmsNormRows {
  RowSizes sizes;
  void* y = nullptr;
  void* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* squares = nullptr;
  double count = 1;
  double eps = 0;
};
void rms_norm_rows(const RmsNormRows& args, StreamHandle stream);

struct ExpRows {
  RowSizes sizes;  // f32 or f64
  void* max = nullptr;
  void* shift = nullptr;
  void* sum = nullptr;
  const void* x = nullptr;
  bool sums_infinity = false;
};
void exp_rows(const ExpRows& args, StreamHandle stream);

}  // namespace tessera::cuda
