#include "ops/reduce/moments_merge.h"

namespace tessera::cpu {

void merge_moments(const MergeMomentsArgs& args) {
  const std::int64_t rows = args.mean.numel();
  dispatch_floating(args.mean.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* parts = args.parts.data<T>();
    for (std::int64_t r = 0; r < rows; ++r) {
      double n = 0;
      double mean = 0;
      double m2 = 0;
      for (std::size_t p = 0; p < args.counts.size(); ++p) {
        const double count = args.counts[p];
        if (count == 0) continue;
        const T* part = parts + static_cast<std::int64_t>(p) * 2 * rows;
        const double delta = static_cast<double>(part[r]) - mean;
        const double total = n + count;
        mean += delta * count / total;
        m2 += static_cast<double>(part[rows + r]) + delta * delta * n * count / total;
        n = total;
      }
      args.mean.data<T>()[r] = static_cast<T>(static_cast<float>(mean));
      if constexpr (std::is_same_v<T, double>) args.mean.data<T>()[r] = mean;
      if constexpr (std::is_same_v<T, double>) {
        args.m2.data<T>()[r] = m2;
      } else {
        args.m2.data<T>()[r] = static_cast<T>(static_cast<float>(m2));
      }
    }
  });
}

}  // namespace tessera::cpu
