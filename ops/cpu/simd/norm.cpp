// Norms, one contiguous row at a time; sums over a row are the caller's to keep short (some thousands of
// elements), so that float accumulators do.
#include "ops/cpu/simd/norm_table.h"
#include "ops/cpu/simd/row_sums.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using i64 = std::int64_t;

constexpr i64 kSample = 512;  // elements that a row's rough mean is of

template <class T>
void normalize(T* y, const T* x, i64 n, T mean, T scale, T shift) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale + shift;
}

template <class T>
void normalize_each(T* y, const T* x, i64 n, const T* mean, const T* scale, const T* shift) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
}

template <class T>
void gradient_sums(const T* dy, const T* x, i64 n, T mean, T* sums) {
  add_row<T, 2, 1>(
      n, sums,
      [=](i64 i, Vector<T>* to) {
        const Vector<T> g = load(dy + i);
        to[0] += g;
        to[1] += g * (load(x + i) - mean);
      },
      [=](i64 i, T* to) {
        to[0] += dy[i];
        to[1] += dy[i] * (x[i] - mean);
      });
}

template <class T>
void add_gradient_sums(double* sum, double* product, const T* dy, const T* x, const T* mean, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    sum[i] += static_cast<double>(dy[i]);
    product[i] += static_cast<double>(dy[i] * (x[i] - mean[i]));
  }
}

template <class T>
void gradient(T* dx, const T* dy, const T* x, i64 n, const T* c) {
  const T factor = c[0];
  const T mean = c[1];
  const T slope = c[2];
  const T shift = c[3];
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = factor * dy[i] + (slope * (x[i] - mean) + shift);
}

template <class T>
void gradient_each(T* dx, const T* dy, const T* x, i64 n, const T* c, i64 row) {
  const T* mean = c + row;
  const T* slope = c + 2 * row;
  const T* shift = c + 3 * row;
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = c[i] * dy[i] + (slope[i] * (x[i] - mean[i]) + shift[i]);
}

// Rows that are added up at once lie apart, each the first of its share of the rows: the processor reads
// ahead along every share. Of rows side by side it reads little ahead, which halves the speed of large maps.

// acc[i] += the sum of column i over the rows, four of them at a time.
template <class T>
void add_rows(T* acc, const T* x, i64 rows, i64 n) {
  const i64 share = rows / 4;
  const i64 apart = share * n;
  for (i64 r = 0; r < share; ++r) {
    const T* v = x + r * n;
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) acc[i] += (v[i] + v[i + apart]) + (v[i + 2 * apart] + v[i + 3 * apart]);
  }
  for (i64 r = 4 * share; r < rows; ++r) {
    const T* v = x + r * n;
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) acc[i] += v[i];
  }
}

// The same of x - mean and of its square, `step` rows at a time for as many as that takes; returns their
// number.
template <int step, class T>
i64 add_deviations(T* sum, T* square, const T* x, const T* mean, i64 rows, i64 n) {
  const i64 share = rows / step;
  const i64 apart = share * n;
  for (i64 r = 0; r < share; ++r) {
    const T* v = x + r * n;
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      T off = T(0);
      T off_square = T(0);
#pragma GCC unroll 8
      for (int k = 0; k < step; ++k) {
        const T a = v[k * apart + i] - mean[i];
        off += a;
        off_square += a * a;
      }
      sum[i] += off;
      square[i] += off_square;
    }
  }
  return step * share;
}

// Likewise of dy and dy (x - mean).
template <int step, class T>
i64 add_products(T* sum, T* product, const T* dy, const T* x, const T* mean, i64 rows, i64 n) {
  const i64 share = rows / step;
  const i64 apart = share * n;
  for (i64 r = 0; r < share; ++r) {
    const T* d = dy + r * n;
    const T* v = x + r * n;
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      T g = T(0);
      T gx = T(0);
#pragma GCC unroll 4
      for (int k = 0; k < step; ++k) {
        g += d[k * apart + i];
        gx += d[k * apart + i] * (v[k * apart + i] - mean[i]);
      }
      sum[i] += g;
      product[i] += gx;
    }
  }
  return step * share;
}

template <class T>
void take_deviations(T* sum, T* square, const T* x, const T* mean, i64 rows, i64 n) {
  for (i64 i = 0; i < n; ++i) sum[i] = square[i] = T(0);
  const i64 done = add_deviations<8>(sum, square, x, mean, rows, n);
  add_deviations<1>(sum, square, x + done * n, mean, rows - done, n);
}

// Whether what a column's squares tell is mostly how far its mean was off: such squares have lost digits.
template <class T>
bool far_off(const T* sum, const T* square, i64 n, T each) {
  int columns = 0;
  for (i64 i = 0; i < n; ++i) columns += sum[i] * sum[i] * each > T(0.75) * square[i] ? 1 : 0;
  return columns > 0;
}

// Deviations from a rough mean, whose sum corrects it; then the block joins those before (Chan et al. 1979).
// The rough mean is the block's own where it is the first one, else that of all before it, which spares a
// pass over the block; unless that lies far away. An infinite value leaves sum infinite, not NaN.
template <class T>
void add_moments(double* sum, double* squares, const T* x, i64 rows, i64 n, double before, T* scratch) {
  T* mean = scratch;
  T* left = scratch + n;
  T* square = scratch + 2 * n;
  const T each = T(1) / static_cast<T>(rows);
  const auto own_rows = static_cast<double>(rows);
  const double own_each = 1.0 / own_rows;
  const double before_each = before > 0 ? 1.0 / before : 0.0;
  const double weight = before * own_rows / (before + own_rows);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const T m = static_cast<T>(sum[i] * before_each);
    mean[i] = m - m == T(0) ? m : T(0);
  }
  if (before == 0) {
    add_rows(mean, x, rows, n);
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) mean[i] *= each;
  }
  take_deviations(left, square, x, mean, rows, n);
  if (before > 0 && far_off(left, square, n, each)) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) mean[i] += left[i] - left[i] == T(0) ? left[i] * each : T(0);
    take_deviations(left, square, x, mean, rows, n);
  }
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    const double d = mean[i] - mean[i] == T(0) ? static_cast<double>(left[i]) : 0.0;
    const double own = own_rows * static_cast<double>(mean[i]) + d;
    const double m2 = static_cast<double>(square[i]) - d * d * own_each;
    const double off = own * own_each - sum[i] * before_each;
    squares[i] += (m2 < 0.0 ? 0.0 : m2) + weight * off * off;
    sum[i] += own;
  }
}

// off[0], off[1] = the sums of x - mean and of its square over a row.
template <class T>
void row_deviations(const T* x, i64 n, T mean, T* off) {
  add_row<T, 2, 4>(
      n, off,
      [=](i64 i, Vector<T>* to) {
        const Vector<T> d = load(x + i) - mean;
        to[0] += d;
        to[1] += d * d;
      },
      [=](i64 i, T* to) {
        const T d = x[i] - mean;
        to[0] += d;
        to[1] += d * d;
      });
}

// Likewise for one row, whose beginning gives the rough mean. Where a sum leaves the range of T, it is taken
// in double.
template <class T>
void moments(const T* x, i64 n, double* sums) {
  const auto count = static_cast<double>(n);
  const i64 beginning = n < kSample ? n : kSample;
  T mean = sum_row<T>(
               beginning, [x](i64 i) { return load(x + i); }, [x](i64 i) { return x[i]; }) /
           static_cast<T>(beginning);
  const T each = T(1) / static_cast<T>(n);
  T off[2];
  row_deviations(x, n, mean, off);
  if (off[0] * off[0] * each > T(0.1) * off[1]) {  // squares of a mean far off have lost digits
    mean += off[0] * each;
    row_deviations(x, n, mean, off);
  }
  if (off[1] - off[1] == T(0)) {
    const auto d = static_cast<double>(off[0]);
    const double m2 = static_cast<double>(off[1]) - d * d / count;
    sums[0] = count * static_cast<double>(mean) + d;
    sums[1] = m2 < 0.0 ? 0.0 : m2;
    return;
  }
  sums[0] = 0;
  sums[1] = 0;
  for (i64 i = 0; i < n; ++i) sums[0] += static_cast<double>(x[i]);
  for (i64 i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - sums[0] / count;
    sums[1] += d * d;
  }
}

template <class T>
void add_gradient_rows(double* sum, double* product, const T* dy, const T* x, const T* mean, i64 rows, i64 n,
                       T* scratch) {
  T* s = scratch;
  T* p = scratch + n;
  for (i64 i = 0; i < 2 * n; ++i) scratch[i] = T(0);
  const i64 done = add_products<4>(s, p, dy, x, mean, rows, n);
  add_products<1>(s, p, dy + done * n, x + done * n, mean, rows - done, n);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    sum[i] += static_cast<double>(s[i]);
    product[i] += static_cast<double>(p[i]);
  }
}

template <class T>
T sum_squares(const T* x, i64 n) {
  return sum_row<T>(
      n, [x](i64 i) { return load(x + i) * load(x + i); }, [x](i64 i) { return x[i] * x[i]; });
}

template <class T>
T weighted_dot(const T* dy, const T* x, const T* weight, i64 n) {
  if (weight == nullptr)
    return sum_row<T>(
        n, [=](i64 i) { return load(dy + i) * load(x + i); }, [=](i64 i) { return dy[i] * x[i]; });
  return sum_row<T>(
      n, [=](i64 i) { return load(dy + i) * load(weight + i) * load(x + i); },
      [=](i64 i) { return dy[i] * weight[i] * x[i]; });
}

template <class T>
void scaled(T* y, const T* x, const T* weight, i64 n, T factor) {
  if (weight == nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = x[i] * factor;
  } else {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = x[i] * factor * weight[i];
  }
}

// stats[0] = rstd, stats[1] = slope.
template <class T>
void rms_gradient(T* dx, T* dweight, const T* dy, const T* x, const T* weight, i64 n, const T* stats) {
  const T rstd = stats[0];
  const T slope = stats[1];
  if (dweight != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dweight[i] += dy[i] * (x[i] * rstd);
  }
  if (dx == nullptr) return;
  if (weight == nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dx[i] = rstd * dy[i] - slope * x[i];
  } else {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dx[i] = rstd * (dy[i] * weight[i]) - slope * x[i];
  }
}

template <class T>
constexpr NormBlocks<T> blocks() {
  return {&normalize<T>,     &normalize_each<T>, &gradient_sums<T>, &add_gradient_sums<T>, &gradient<T>,
          &gradient_each<T>, &moments<T>,        &add_moments<T>,   &add_gradient_rows<T>, &sum_squares<T>,
          &weighted_dot<T>,  &scaled<T>,         &rms_gradient<T>};
}

}  // namespace

const NormTable& norm_table() {
  static constexpr NormTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
