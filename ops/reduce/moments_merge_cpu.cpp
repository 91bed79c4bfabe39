#include "ops/reduce/moments_merge.h"

#include <cmath>

namespace tessera::cpu {
namespace {

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, double>) return value;
  return static_cast<T>(static_cast<float>(value));
}

}  // namespace

void merge_moments(const MergeMomentsArgs& args) {
  const std::int64_t rows = args.mean.numel();
  const std::int64_t parts_given = args.parts.size(0);
  const std::int64_t kinds = std::ssize(args.counts) / parts_given;
  dispatch_floating(args.mean.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* parts = args.parts.data<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      double n = 0;
      double mean = 0;
      double m2 = 0;
      for (std::int64_t p = 0; p < parts_given; ++p) {
        const double count = args.counts[static_cast<std::size_t>(p * kinds + r % kinds)];
        if (count == 0) continue;
        const T* part = parts + p * 3 * rows;
        const double own = static_cast<double>(part[r]) + static_cast<double>(part[rows + r]);
        const double delta = own - mean;
        const double total = n + count;
        const double share = count / total;
        mean += std::isfinite(delta) ? delta * share : own;  // what is infinite stays so
        m2 += static_cast<double>(part[2 * rows + r]) + delta * delta * n * share;
        n = total;
      }
      const T head = rounded<T>(mean);
      args.mean.data<T>()[r] = head;
      args.rest.data<T>()[r] = std::isfinite(mean) ? rounded<T>(mean - static_cast<double>(head)) : T(0);
      args.m2.data<T>()[r] = rounded<T>(m2);
    }
  });
}

}  // namespace tessera::cpu
