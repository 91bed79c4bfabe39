#include <array>

#include "ops/cpu/parallel.h"
#include "ops/reduce/scan.h"

namespace tessera::cpu {
namespace {

using i64 = std::int64_t;
constexpr i64 kStrip = 256;  // columns that run together

template <class T>
using Running = std::conditional_t<is_floating(dtype_of<T>()), double, i64>;
template <class T>
using Result = std::conditional_t<is_floating(dtype_of<T>()), T, i64>;
template <class T, class Acc>
Result<T> rounded(Acc sum) {
  if constexpr (kHalf<T>) return T(static_cast<float>(sum));
  return static_cast<Result<T>>(sum);
}

// One piece of one row of A, a strip of B.
struct Place {
  i64 piece = 0;
  i64 a = 0;
  i64 first = 0;    // position of the piece's first element
  i64 column = 0;   // of the strip
  i64 columns = 0;  // in the strip
};

template <class F>
void for_each_place(const Array& x, const std::vector<i64>& lengths, const F& f) {
  const i64 strips = ceil_div(x.size(2), kStrip);
  const auto pieces = static_cast<i64>(lengths.size());
  std::vector<i64> first(lengths.size() + 1, 0);
  for (std::size_t p = 0; p < lengths.size(); ++p) first[p + 1] = first[p] + lengths[p];
  parallel_for(pieces * x.size(0) * strips, threads_for(static_cast<double>(x.numel())), [&](i64 job) {
    Place at;
    at.column = job % strips * kStrip;
    at.columns = std::min(kStrip, x.size(2) - at.column);
    at.a = job / strips % x.size(0);
    at.piece = job / strips / x.size(0);
    at.first = first[static_cast<std::size_t>(at.piece)];
    f(at);
  });
}

template <class A>
i64 of_piece(const A& args, const Place& at) {
  return (at.piece * args.x.size(0) + at.a) * args.x.size(2) + at.column;
}

template <class T>
void sums_typed(const PieceSumsArgs& args) {
  using Acc = Running<T>;
  for_each_place(args.x, args.lengths, [&](const Place& at) {
    Acc* sums = args.sums.data<Acc>() + of_piece(args, at);
    std::fill(sums, sums + at.columns, Acc(0));
    for (i64 i = 0; i < args.lengths[static_cast<std::size_t>(at.piece)]; ++i) {
      const T* row = args.x.data<T>() + (at.a * args.x.size(1) + at.first + i) * args.x.size(2) + at.column;
      for (i64 b = 0; b < at.columns; ++b) sums[b] += static_cast<Acc>(row[b]);
    }
  });
}

template <class T>
void running_typed(const RunningSumsArgs& args) {
  using Acc = Running<T>;
  for_each_place(args.x, args.lengths, [&](const Place& at) {
    std::array<Acc, kStrip> sum{};
    if (args.starts.defined()) {
      const Acc* start = args.starts.data<Acc>() + of_piece(args, at);
      std::copy(start, start + at.columns, sum.begin());
    }
    const i64 n = args.lengths[static_cast<std::size_t>(at.piece)];
    for (i64 step = 0; step < n; ++step) {
      const i64 i = at.first + (args.reverse ? n - 1 - step : step);
      const i64 offset = (at.a * args.x.size(1) + i) * args.x.size(2) + at.column;
      const T* row = args.x.data<T>() + offset;
      Result<T>* out = args.out.data<Result<T>>() + offset;
      for (i64 b = 0; b < at.columns; ++b) {
        sum[static_cast<std::size_t>(b)] += static_cast<Acc>(row[b]);
        out[b] = rounded<T>(sum[static_cast<std::size_t>(b)]);
      }
    }
  });
}

}  // namespace

void piece_sums(const PieceSumsArgs& args) {
  dispatch(args.x.dtype(), [&](auto tag) { sums_typed<typename decltype(tag)::type>(args); });
}

void running_sums(const RunningSumsArgs& args) {
  dispatch(args.x.dtype(), [&](auto tag) { running_typed<typename decltype(tag)::type>(args); });
}

}  // namespace tessera::cpu
