// Losses: functions of a prediction and a target, and rows over classes.
#include <array>
#include <utility>

#include "ops/cpu/simd/exp.h"
#include "ops/cpu/simd/loss_table.h"
#include "ops/cpu/simd/pair_loss_functions.h"
#include "ops/cpu/simd/row_sums.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using i64 = std::int64_t;

template <PairLoss loss, PairPart part, class T>
void pair(T* out, const T* x, const T* t, const T* p, i64 n, T alpha, T scale) {
  if (loss == PairLoss::LogitEntropy && p != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) out[i] = scale * pair_element<loss, part>(x[i], t[i], p[i], alpha);
    return;
  }
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = scale * pair_element<loss, part>(x[i], t[i], T(1), alpha);
}

constexpr int kParts = static_cast<int>(PairPart::kCount);
constexpr int kPairs = static_cast<int>(PairLoss::kCount) * kParts;

template <class T, int... i>
constexpr std::array<typename LossBlocks<T>::Pair, kPairs> pairs(std::integer_sequence<int, i...>) {
  return {&pair<static_cast<PairLoss>(i / kParts), static_cast<PairPart>(i % kParts), T>...};
}
template <class T>
constexpr std::array<typename LossBlocks<T>::Pair, kPairs> kPairTable =
    pairs<T>(std::make_integer_sequence<int, kPairs>());

template <class T>
void raise(T* top, const T* x, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) top[i] = x[i] > top[i] ? x[i] : top[i];
}

template <class T>
void add_exp(T* sum, const T* x, const T* top, i64 n) {
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  for (; i + w <= n; i += w) store(sum + i, load(sum + i) + exp_vector(load(x + i) - load(top + i)));
  for (; i < n; ++i) sum[i] += vexp_flushed(x[i] - top[i]);
}

template <class T>
void add_scaled(T* sum, const T* x, i64 n, T factor) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) sum[i] += factor * x[i];
}

template <class T>
void class_gradient(T* dx, const T* x, const T* lse, const T* a, const T* b, i64 n, T shift) {
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  for (; i + w <= n; i += w)
    store(dx + i, exp_vector(load(x + i) - load(lse + i)) * load(a + i) - load(b + i) * shift);
  for (; i < n; ++i) dx[i] = vexp_flushed(x[i] - lse[i]) * a[i] - b[i] * shift;
}

// The first n numbers, fewer than a register holds, and `fill` behind them.
template <class T>
Vector<T> load_some(const T* x, i64 n, T fill) {
  T all[kWidth<T>];
  for (i64 i = 0; i < kWidth<T>; ++i) all[i] = i < n ? x[i] : fill;
  return load(all);
}

// Rows over classes are short: what is left of one is worked on in a register, too.
template <class T>
T row_exp(const T* x, i64 n, T top) {
  const i64 whole = n - n % kWidth<T>;
  const T sum = sum_row<T>(
      whole, [=](i64 i) { return exp_vector(load(x + i) - top); }, [](i64) { return T(0); });
  if (whole == n) return sum;
  return sum + sum_of<T>(exp_vector(load_some(x + whole, n - whole, -static_cast<T>(__builtin_inf())) - top));
}

template <class T>
void row_gradient(T* dx, const T* x, const T* weight, i64 n, const T* lse_a_b) {
  const T lse = lse_a_b[0];
  const T a = lse_a_b[1];
  const T b = lse_a_b[2];
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  if (weight == nullptr) {
    for (; i + w <= n; i += w) store(dx + i, exp_vector(load(x + i) - lse) * a - b);
  } else {
    for (; i + w <= n; i += w) store(dx + i, exp_vector(load(x + i) - lse) * a - load(weight + i) * b);
  }
  if (i == n) return;
  const Vector<T> p = exp_vector(load_some(x + i, n - i, lse) - lse) * a;
  const Vector<T> rest = p - (weight == nullptr ? Vector<T>{} + b : load_some(weight + i, n - i, T(0)) * b);
  for (i64 k = 0; i + k < n; ++k) dx[i + k] = rest[k];
}

template <class T>
constexpr LossBlocks<T> blocks() {
  return {kPairTable<T>.data(), &raise<T>,   &add_exp<T>, &add_scaled<T>,
          &class_gradient<T>,   &max_row<T>, &row_exp<T>, &row_gradient<T>};
}

}  // namespace

const LossTable& loss_table() {
  static constexpr LossTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
