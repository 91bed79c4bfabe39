#include <limits>
#include <span>
#include <vector>

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

// A number is passed over by what is larger and by every NaN. Without a branch: it could not be predicted.
template <class T>
bool better(T value, T best) {
  return static_cast<bool>(static_cast<int>(value > best) | static_cast<int>(value != value));
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
    const std::int64_t to = offset(a_.y, n, c) + d * a_.y.stride(2) + h * a_.y.stride(3);
    if (!side_by_side()) return one_channel(x_ + offset(a_.x, n, c), d, h, to);
    std::vector<std::int64_t> places;
    for (std::int64_t w = 0; w < a_.y.size(4); ++w) {
      const Window window{row(*a_.rows[0], d), row(*a_.rows[1], h), row(*a_.rows[2], w)};
      list_places(window, places);
      for (std::int64_t block = 0; block < a_.x.size(1); block += kLanes)
        lanes(window, places,
              {n, block, std::min(kLanes, a_.x.size(1) - block), to + w * a_.y.stride(4) + block});
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

  void one_channel(const S* x, std::int64_t d_out, std::int64_t h_out, std::int64_t to) const {
    struct Line {
      const S* x;
      std::int64_t start;  // of the line, in the map
    };
    std::vector<Line> lines;
    for (std::int64_t d : row(*a_.rows[0], d_out))
      for (std::int64_t h : row(*a_.rows[1], h_out))
        lines.push_back({x + in_buffer(d, h, 0), in_map(d, h, 0)});
    const std::int64_t step = a_.x.stride(4);
    for (std::int64_t w_out = 0; w_out < a_.y.size(4); ++w_out) {
      const std::span<const std::int64_t> taps = row(*a_.rows[2], w_out);
      T best = -std::numeric_limits<T>::infinity();
      std::int64_t at = lines.empty() || taps.empty() ? -1 : lines.front().start + taps.front();
      for (const Line& line : lines)
        for (std::int64_t w : taps) {
          const T value = static_cast<T>(line.x[w * step]);
          const bool takes = better(value, best);
          best = takes ? value : best;
          at = takes ? line.start + w : at;
        }
      y_[to + w_out * a_.y.stride(4)] = static_cast<S>(best);
      if (indices_ != nullptr) indices_[to + w_out * a_.y.stride(4)] = at;
    }
  }

  // Where each element of a window lies in the map.
  void list_places(const Window& window, std::vector<std::int64_t>& places) const {
    if (indices_ == nullptr) return;
    places.clear();
    for (std::int64_t d : window.d)
      for (std::int64_t h : window.h)
        for (std::int64_t w : window.w) places.push_back(in_map(d, h, w));
    if (places.empty()) places.push_back(-1);
  }

  // Some channels of one output; `to` is where the first of them goes.
  struct Lanes {
    std::int64_t n, first, count, to;
  };
  void lanes(const Window& window, const std::vector<std::int64_t>& places, const Lanes& l) const {
    const auto [n, first, count, to] = l;
    const S* from = x_ + offset(a_.x, n, first);
    T best[kLanes];
    Tap taps[kLanes];
    std::fill(best, best + count, -std::numeric_limits<T>::infinity());
    std::fill(taps, taps + count, Tap(0));
    Tap tap = 0;
    for (std::int64_t d : window.d)
      for (std::int64_t h : window.h)
        for (std::int64_t w : window.w) {
          const S* x = from + in_buffer(d, h, w);
          for (std::int64_t i = 0; i < count; ++i) {
            const T value = static_cast<T>(x[i]);
            const bool takes = better(value, best[i]);
            best[i] = takes ? value : best[i];
            taps[i] = takes ? tap : taps[i];
          }
          ++tap;
        }
    for (std::int64_t i = 0; i < count; ++i) y_[to + i] = static_cast<S>(best[i]);
    if (indices_ != nullptr)
      for (std::int64_t i = 0; i < count; ++i) indices_[to + i] = places[static_cast<std::size_t>(taps[i])];
  }

  const MaxPoolArgs& a_;
  const S* x_;
  S* y_;
  std::int64_t* indices_;
};

// Division by one number many times: a product, put right where rounding made it miss by one.
class Divisor {
 public:
  explicit Divisor(std::int64_t by) : by_(by), inverse_(1.0 / static_cast<double>(by)) {}
  std::int64_t quotient(std::int64_t a) const {
    const auto q = static_cast<std::int64_t>(static_cast<double>(a) * inverse_);
    return q + (a - q * by_ >= by_ ? 1 : 0) - (a < q * by_ ? 1 : 0);
  }

 private:
  std::int64_t by_;
  double inverse_;
};

// Where a position of the map lies in the buffer. With dims that are whole inside the one that is cut, in
// memory order, that needs no division.
class BufferOffset {
 public:
  BufferOffset(const PooledMap& at, const Array& buffer)
      : by_width_(at.map[2]), by_height_(at.map[1]), step_(buffer.stride(4)) {
    for (int d = 0; d < 3; ++d) start_ -= at.base[d] * buffer.stride(d + 2);
    per_line_ = buffer.stride(3) - at.map[2] * step_;
    per_plane_ = at.map[0] == 1 ? 0 : buffer.stride(2) - at.map[1] * buffer.stride(3);
  }
  std::int64_t of(std::int64_t position) const {
    const std::int64_t offset = start_ + position * step_;
    if (per_line_ == 0 && per_plane_ == 0) return offset;
    const std::int64_t line = by_width_.quotient(position);
    return offset + line * per_line_ + by_height_.quotient(line) * per_plane_;
  }

 private:
  Divisor by_width_;
  Divisor by_height_;
  std::int64_t step_;
  std::int64_t start_ = 0;
  std::int64_t per_line_ = 0;  // what one more line adds beyond its positions
  std::int64_t per_plane_ = 0;
};

// f(y element, buffer element) for every output whose index is in the map; several channels in one piece
// where they lie side by side.
template <class T, class F>
void follow(const ScatterMaxArgs& a, F f) {
  const BufferOffset place(a.at, a.buffer);
  const std::int64_t block = a.y.stride(1) == 1 ? 32 : 1;
  const std::int64_t blocks = ceil_div(a.y.size(1), block);
  const auto channels = [&](std::int64_t n, std::int64_t first, std::int64_t in_y, std::int64_t in_indices) {
    const std::int64_t count = std::min(block, a.y.size(1) - first);
    T* y = a.y.data<T>() + offset(a.y, n, first) + in_y;
    T* buffer = a.buffer.data<T>() + offset(a.buffer, n, first);
    const std::int64_t* indices = a.indices.data<std::int64_t>() + offset(a.indices, n, first) + in_indices;
    for (std::int64_t c = 0; c < count; ++c) {
      const std::int64_t at = indices[c * a.indices.stride(1)];
      if (at >= 0) f(y[c * a.y.stride(1)], buffer[c * a.buffer.stride(1) + place.of(at)]);
    }
  };
  const auto spatial = [](const Array& t, std::int64_t d, std::int64_t h, std::int64_t w) {
    return d * t.stride(2) + h * t.stride(3) + w * t.stride(4);
  };
  parallel_for(a.y.size(0) * blocks, threads_for(static_cast<double>(a.y.numel()) * 8),
               [&](std::int64_t piece) {
                 for (std::int64_t d = 0; d < a.y.size(2); ++d)
                   for (std::int64_t h = 0; h < a.y.size(3); ++h)
                     for (std::int64_t w = 0; w < a.y.size(4); ++w)
                       channels(piece / blocks, piece % blocks * block, spatial(a.y, d, h, w),
                                spatial(a.indices, d, h, w));
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
    if constexpr (!kHalf<T>) follow<T>(args, [](T y, T& to) { to += y; });
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
