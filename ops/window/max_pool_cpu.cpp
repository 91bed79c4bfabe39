#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/window/max_pool_kernels.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kLanes = 256;  // channels worked on at a time where they lie side by side

// Row o of a matrix: the positions it reads.
std::span<const std::int64_t> row(const SparseRows& rows, std::int64_t o) {
  const std::int64_t begin = rows.first[static_cast<std::size_t>(o)];
  const std::int64_t end = rows.first[static_cast<std::size_t>(o) + 1];
  return {rows.index.data() + begin, static_cast<std::size_t>(end - begin)};
}

std::int64_t offset(const Array& a, std::int64_t n, std::int64_t c) {
  return n * a.stride(0) + c * a.stride(1);
}

// A number is passed over by what is larger and by every NaN.
template <class T>
bool better(T value, T best) {
  return value > best || value != value;
}

template <class S>
class MaxPool {
 public:
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  // Which element of a window: as wide as the values, so that both fill one vector.
  using Tap = std::conditional_t<std::is_same_v<T, double>, std::int64_t, std::int32_t>;
  explicit MaxPool(const MaxPoolArgs& args)
      : a_(args),
        x_(args.x.data<S>()),
        y_(args.y.data<S>()),
        indices_(args.indices.defined() ? args.indices.data<std::int64_t>() : nullptr) {}

  bool side_by_side() const { return a_.x.size(1) > 1 && a_.x.stride(1) == 1 && a_.y.stride(1) == 1; }

  // All outputs of one row along the last dim.
  void run(std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h) const {
    for (std::int64_t w = 0; w < a_.y.size(4); ++w) {
      const Window window{row(*a_.rows[0], d), row(*a_.rows[1], h), row(*a_.rows[2], w)};
      const std::int64_t to =
          offset(a_.y, n, c) + d * a_.y.stride(2) + h * a_.y.stride(3) + w * a_.y.stride(4);
      if (side_by_side()) {
        for (std::int64_t block = 0; block < a_.x.size(1); block += kLanes) lanes(window, n, block, to);
      } else {
        one(window, x_ + offset(a_.x, n, c), to);
      }
    }
  }

 private:
  struct Window {
    std::span<const std::int64_t> d, h, w;
    std::size_t size() const { return d.size() * h.size() * w.size(); }
  };

  std::int64_t in_buffer(std::int64_t d, std::int64_t h, std::int64_t w) const {
    return d * a_.x.stride(2) + h * a_.x.stride(3) + w * a_.x.stride(4);
  }
  std::int64_t in_map(std::int64_t d, std::int64_t h, std::int64_t w) const {
    return ((d + a_.at.base[0]) * a_.at.map[1] + h + a_.at.base[1]) * a_.at.map[2] + w + a_.at.base[2];
  }

  void one(const Window& window, const S* x, std::int64_t to) const {
    T best = -std::numeric_limits<T>::infinity();
    std::int64_t at = window.size() == 0 ? -1 : in_map(window.d[0], window.h[0], window.w[0]);
    for (std::int64_t d : window.d)
      for (std::int64_t h : window.h) {
        const S* from = x + in_buffer(d, h, 0);
        const std::int64_t start = in_map(d, h, 0);
        for (std::int64_t w : window.w) {
          const T value = static_cast<T>(from[w * a_.x.stride(4)]);
          if (!better(value, best)) continue;
          best = value;
          at = start + w;
        }
      }
    y_[to] = static_cast<S>(best);
    if (indices_ != nullptr) indices_[to] = at;
  }

  void lanes(const Window& window, std::int64_t n, std::int64_t block, std::int64_t to) const {
    const std::int64_t count = std::min(kLanes, a_.x.size(1) - block);
    const S* x = x_ + offset(a_.x, n, block);
    T best[kLanes];
    Tap taps[kLanes];
    std::fill(best, best + count, -std::numeric_limits<T>::infinity());
    std::fill(taps, taps + count, Tap(0));
    Tap tap = 0;
    for (std::int64_t d : window.d)
      for (std::int64_t h : window.h)
        for (std::int64_t w : window.w) {
          const S* from = x + in_buffer(d, h, w);
          for (std::int64_t i = 0; i < count; ++i) {
            const T value = static_cast<T>(from[i]);
            const bool takes = better(value, best[i]);
            best[i] = takes ? value : best[i];
            taps[i] = takes ? tap : taps[i];
          }
          ++tap;
        }
    for (std::int64_t i = 0; i < count; ++i) y_[to + block + i] = static_cast<S>(best[i]);
    if (indices_ != nullptr)
      for (std::int64_t i = 0; i < count; ++i) indices_[to + block + i] = found(window, taps[i]);
  }

  std::int64_t found(const Window& window, std::int64_t tap) const {
    if (window.size() == 0) return -1;
    const auto t = static_cast<std::size_t>(tap);
    const std::size_t rest = t / window.w.size();
    return in_map(window.d[rest / window.h.size()], window.h[rest % window.h.size()],
                  window.w[t % window.w.size()]);
  }

  const MaxPoolArgs& a_;
  const S* x_;
  S* y_;
  std::int64_t* indices_;
};

// f(y element, buffer element) for every output whose index is in the map; a sample's channels in one piece
// where they lie side by side.
template <class T, class F>
void follow(const ScatterMaxArgs& a, F f) {
  T* y = a.y.data<T>();
  T* buffer = a.buffer.data<T>();
  const std::int64_t* indices = a.indices.data<std::int64_t>();
  const std::int64_t block = a.y.stride(1) == 1 ? 32 : 1;
  const std::int64_t blocks = ceil_div(a.y.size(1), block);
  const auto channels = [&](std::int64_t piece, std::int64_t d, std::int64_t h, std::int64_t w) {
    const std::int64_t n = piece / blocks;
    const std::int64_t first = piece % blocks * block;
    const std::int64_t last = std::min(a.y.size(1), first + block);
    for (std::int64_t c = first; c < last; ++c) {
      const std::int64_t from = offset(a.y, n, c) + d * a.y.stride(2) + h * a.y.stride(3) + w * a.y.stride(4);
      const std::int64_t at = indices[offset(a.indices, n, c) + d * a.indices.stride(2) +
                                      h * a.indices.stride(3) + w * a.indices.stride(4)];
      if (at < 0) continue;
      const std::int64_t line = at / a.at.map[2];
      const std::int64_t to = (line / a.at.map[1] - a.at.base[0]) * a.buffer.stride(2) +
                              (line % a.at.map[1] - a.at.base[1]) * a.buffer.stride(3) +
                              (at % a.at.map[2] - a.at.base[2]) * a.buffer.stride(4);
      f(y[from], buffer[offset(a.buffer, n, c) + to]);
    }
  };
  parallel_for(a.y.size(0) * blocks, threads_for(static_cast<double>(a.y.numel()) * 8),
               [&](std::int64_t piece) {
                 for (std::int64_t d = 0; d < a.y.size(2); ++d)
                   for (std::int64_t h = 0; h < a.y.size(3); ++h)
                     for (std::int64_t w = 0; w < a.y.size(4); ++w) channels(piece, d, h, w);
               });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) {
  if (args.y.numel() == 0) return;
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    const MaxPool<typename decltype(tag)::type> pool(args);
    const std::int64_t channels = pool.side_by_side() ? 1 : args.y.size(1);
    const std::int64_t depth = args.y.size(2);
    const std::int64_t height = args.y.size(3);
    double reads = static_cast<double>(args.y.numel());
    for (std::size_t d = 0; d < 3; ++d)
      reads *= static_cast<double>(args.rows[d]->index.size()) / static_cast<double>(args.rows[d]->rows());
    parallel_for(args.y.size(0) * channels * depth * height, threads_for(reads), [&](std::int64_t piece) {
      const std::int64_t plane = piece / height / depth;
      pool.run(plane / channels, plane % channels, piece / height % depth, piece % height);
    });
  });
}

void scatter_max(const ScatterMaxArgs& args) {
  args.buffer.zero_();
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bf16>) follow<T>(args, [](T y, T& to) { to += y; });
  });
}

void gather_max(const ScatterMaxArgs& args) {
  args.y.zero_();
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    follow<T>(args, [](T& y, T from) { y = from; });
  });
}

}  // namespace tessera::cpu
