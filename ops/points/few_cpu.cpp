#include <algorithm>
#include <array>
#include <span>

#include "ops/cpu/parallel.h"
#include "ops/points/geometry.h"
#include "ops/points/search.h"

namespace tessera::cpu::points {
namespace {

constexpr int kMostDims = 8;
constexpr std::int64_t kQueriesPerPiece = 64;

// The first row of x [n, dims] that has a NaN or an infinity, or -1.
template <class T>
std::int64_t first_unordered(const Array& x) {
  const T* v = x.data<T>();
  const std::int64_t n = x.numel();
  int found = 0;
  for (std::int64_t i = 0; i < n; ++i) found |= std::isfinite(v[i]) ? 0 : 1;
  if (found == 0) return -1;
  const T* bad = std::find_if(v, v + n, [](T c) { return !std::isfinite(c); });
  return (bad - v) / x.size(1);
}

// All points by coordinate; what fills the last vector up lies at the origin.
template <int D, class T>
class Few {
 public:
  explicit Few(const Array& points)
      : n_(points.size(0)),
        filled_(ceil_div(n_, kVector) * kVector),
        dims_(static_cast<int>(points.size(1))) {
    const T* x = points.data<T>();
    for (int d = 0; d < dims(); ++d) {
      T* c = coords_.data() + d * kLeafPoints;
      for (std::int64_t i = 0; i < n_; ++i) c[i] = x[i * dims() + d];
      std::fill(c + n_, c + filled_, T(0));
    }
  }
  int dims() const { return D > 0 ? D : dims_; }

  // From `point` to every point: the root of the sum in the order of the dims (geometry.h).
  void distances(const T* point, T* out) const {
    if constexpr (D > 0) {
      std::array<T, static_cast<std::size_t>(D)> p;
      std::copy_n(point, D, p.data());
      for (std::int64_t i = 0; i < filled_; ++i) out[i] = std::sqrt(square(p.data(), i));
    } else {
      for (std::int64_t i = 0; i < filled_; ++i) out[i] = std::sqrt(square(point, i));
    }
  }

 private:
  static constexpr std::int64_t kVector = 8;

  T square(const T* point, std::int64_t i) const {
    T sum = 0;
    for (int d = 0; d < dims(); ++d) {
      const T apart = point[d] - coords_[static_cast<std::size_t>(d * kLeafPoints + i)];
      sum = sum + apart * apart;
    }
    return sum;
  }

  std::int64_t n_;
  std::int64_t filled_;
  int dims_;
  std::array<T, static_cast<std::size_t>(kMostDims* kLeafPoints)> coords_;
};

// The k least of those distances that are at most `limit`, ascending, with their positions: the first of
// equal ones first. Returns how many they are.
template <class T>
std::int64_t least(std::span<const T> all, T limit, std::span<T> distances, std::int64_t* ids) {
  const std::size_t n = all.size();
  const std::size_t k = distances.size();
  const auto insert = [=](T distance, std::size_t id, std::size_t at) {
    for (; at > 0 && distances[at - 1] > distance; --at) {
      distances[at] = distances[at - 1];
      ids[at] = ids[at - 1];
    }
    distances[at] = distance;
    ids[at] = static_cast<std::int64_t>(id);
  };
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i < n && count < k; ++i)
    if (all[i] <= limit) insert(all[i], i, count++);
  if (count < k) return static_cast<std::int64_t>(count);
  T last = distances[k - 1];
  for (; i < n; ++i) {
    if (all[i] >= last) continue;
    insert(all[i], i, k - 1);
    last = distances[k - 1];
  }
  return static_cast<std::int64_t>(count);
}

template <int D, class T>
void run(const NearestOfFewArgs& args) {
  const Few<D, T> few(args.points);
  const std::int64_t m = args.queries.size(0);
  const std::int64_t k = args.distances.size(1);
  const auto limit = static_cast<T>(args.limit);
  const auto n = static_cast<std::size_t>(args.points.size(0));
  const double work = static_cast<double>(m) * static_cast<double>(k + kLeafPoints) * 32;
  parallel_for(ceil_div(m, kQueriesPerPiece), threads_for(work), [&](std::int64_t piece) {
    std::array<T, static_cast<std::size_t>(kLeafPoints)> all;
    const std::int64_t last = std::min(m, (piece + 1) * kQueriesPerPiece);
    for (std::int64_t q = piece * kQueriesPerPiece; q < last; ++q) {
      T* distances = args.distances.data<T>() + q * k;
      auto* ids = args.ids.data<std::int64_t>() + q * k;
      few.distances(args.queries.data<T>() + q * few.dims(), all.data());
      const std::int64_t count =
          least<T>(std::span<const T>(all).first(n), limit, {distances, static_cast<std::size_t>(k)}, ids);
      std::fill(distances + count, distances + k, std::numeric_limits<T>::infinity());
      std::fill(ids + count, ids + k, -1);
      args.counts.data<std::int64_t>()[q] = count;
    }
  });
}

}  // namespace

void nearest_of_few(const NearestOfFewArgs& args) {
  dispatch_coordinates(args.queries.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* bad = args.unordered.data<std::int64_t>();
    bad[0] = first_unordered<T>(args.points);
    bad[1] = first_unordered<T>(args.queries);
    if (bad[0] >= 0 || bad[1] >= 0) return;
    dispatch_dims(static_cast<int>(args.queries.size(1)), [&](auto d) { run<d.value, T>(args); });
  });
}

}  // namespace tessera::cpu::points
