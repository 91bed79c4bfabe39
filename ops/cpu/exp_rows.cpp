#include "ops/cpu/exp_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/loss_table.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

template <class T>
double sum_of_exp(const T* row, std::int64_t n, T shift, const LossBlocks<T>& kernel) {
  constexpr std::int64_t kTerms = 1024;
  double sum = 0;
  for (std::int64_t at = 0; at < n; at += kTerms)
    sum += static_cast<double>(kernel.row_exp(row + at, std::min(kTerms, n - at), shift));
  return sum;
}

// The vector code takes exponentials of nothing above 0, which an infinity that is not subtracted is.
template <class T>
T infinite_or_nan(const T* row, std::int64_t n) {
  const bool nan = std::any_of(row, row + n, [](T v) { return std::isnan(v); });
  return nan ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity();
}

template <class T>
void run(const ExpRowsArgs& args, const LossBlocks<T>& kernel) {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  constexpr std::int64_t kPiece = 16384;  // elements between two looks at the progress hook
  const std::int64_t rows = args.x.size(0);
  const std::int64_t n = args.x.size(1);
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(n, 1));
  const T* x = args.x.data<T>();
  parallel_for(ceil_div(rows, step), threads_for(20.0 * static_cast<double>(args.x.numel())),
               [&](std::int64_t piece) {
                 for (std::int64_t r = piece * step; r < std::min(rows, (piece + 1) * step); ++r) {
                   const T* row = x + r * n;
                   const T max = n == 0 ? -kInf : kernel.row_top(row, n);
                   const T shift = max == -kInf || (args.sums_infinity && max == kInf) ? T(0) : max;
                   args.max.data<T>()[r] = max;
                   args.shift.data<T>()[r] = shift;
                   args.sum.data<T>()[r] = max == kInf && shift == T(0)
                                               ? infinite_or_nan(row, n)
                                               : static_cast<T>(sum_of_exp(row, n, shift, kernel));
                 }
               });
}

}  // namespace

void exp_rows(const ExpRowsArgs& args) {
  TS_CHECK(args.x.dim() == 2 && args.x.is_contiguous(), "exp_rows", "x {} is not contiguous rows",
           args.x.sizes().str());
  for (const Array* a : {&args.max, &args.shift, &args.sum})
    TS_CHECK(a->numel() == args.x.size(0) && a->is_contiguous() && a->dtype() == args.x.dtype(), "exp_rows",
             "{} {} for rows {} {}; one contiguous number a row is needed", name_of(a->dtype()),
             a->sizes().str(), name_of(args.x.dtype()), args.x.sizes().str());
  if (args.x.dtype() == DType::F64) return run<double>(args, loss_table().f64);
  TS_CHECK(args.x.dtype() == DType::F32, "exp_rows", "type {}; f32 and f64 are supported",
           name_of(args.x.dtype()));
  run<float>(args, loss_table().f32);
}

}  // namespace tessera::cpu
