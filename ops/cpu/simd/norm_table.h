// Vector kernels of the norms: what happens to one contiguous row (or a run of rows) once its statistics are
// known. Plain pointers only, as in tables.h.
#pragma once
#include <cstdint>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

template <class T>
struct NormBlocks {
  using Count = std::int64_t;
  // y = (x - mean) scale + shift: one of each for the row, or one for every element.
  void (*normalize)(T* y, const T* x, Count n, T mean, T scale, T shift);
  void (*normalize_each)(T* y, const T* x, Count n, const T* mean, const T* scale, const T* shift);
  // sums[0] = sum of dy, sums[1] = sum of dy (x - mean).
  void (*gradient_sums)(const T* dy, const T* x, Count n, T mean, T* sums);
  // The same by columns: added to sum[i] and product[i].
  void (*add_gradient_sums)(double* sum, double* product, const T* dy, const T* x, const T* mean, Count n);
  // dx = c[0] dy + c[2] (x - c[1]) + c[3]; `_each`: c holds four rows, `row` apart.
  void (*gradient)(T* dx, const T* dy, const T* x, Count n, const T* c);
  void (*gradient_each)(T* dx, const T* dy, const T* x, Count n, const T* c, Count row);
  // sums[0] = sum of x, sums[1] = sum of squared deviations from its mean.
  void (*moments)(const T* x, Count n, double* sums);
  // Several rows of n columns, one after the other, added up by column. sum and squares (deviations from the
  // column's mean) already hold those of `before` rows; scratch is 3 n.
  void (*add_moments)(double* sum, double* squares, const T* x, Count rows, Count n, double before,
                      T* scratch);
  // Sums of dy and of dy (x - mean); scratch is 2 n. Both are for few rows: float accumulators do.
  void (*add_gradient_rows)(double* sum, double* product, const T* dy, const T* x, const T* mean, Count rows,
                            Count n, T* scratch);
  // Root mean square. weight may be null.
  T (*sum_squares)(const T* x, Count n);
  T (*weighted_dot)(const T* dy, const T* x, const T* weight, Count n);  // sum of dy weight x
  void (*scaled)(T* y, const T* x, const T* weight, Count n, T factor);  // y = x factor weight
  // dx = rstd dy weight - slope x; dweight += dy x rstd. Either may be null.
  void (*rms_gradient)(T* dx, T* dweight, const T* dy, const T* x, const T* weight, Count n, const T* stats);
};
struct NormTable {
  NormBlocks<float> f32;
  NormBlocks<double> f64;
};
TESSERA_ISA_TABLE(NormTable, norm_table)

}  // namespace tessera::cpu
