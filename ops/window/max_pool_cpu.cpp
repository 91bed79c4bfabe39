#include <limits>

#include "ops/cpu/block_io.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/workspace.h"
#include "ops/window/max_pool_places.h"
#include "ops/window/window_blocks.h"

namespace tessera::cpu {
namespace {

bool any_empty(const SparseRows& rows) {
  for (std::int64_t o = 0; o < rows.rows(); ++o)
    if (row(rows, o).empty()) return true;
  return false;
}

// Whether positions of the map, counted from any other, fit into what fills a vector beside values of T.
template <class T>
bool counts_places(const PooledMap& at) {
  return numel_of(at.map) <= std::numeric_limits<typename WindowLine<T>::Place>::max();
}

// A line of outputs: its sample, channel (the first one, of several) and place.
struct OutputLine {
  std::int64_t n, c, d, h;
  std::int64_t in(const Array& a) const { return offset(a, n, c) + d * a.stride(2) + h * a.stride(3); }
};

template <class S>
class MaxPool {
 public:
  explicit MaxPool(const MaxPoolArgs& args) : a_(args) {}

 protected:
  // f(element 0, position) of every line of x that a line of outputs reads.
  template <class F>
  void each_line(const OutputLine& o, const F& f) const {
    const S* x = a_.x.template data<S>() + offset(a_.x, o.n, o.c);
    for (std::int64_t d : row(*a_.rows[0], o.d))
      for (std::int64_t h : row(*a_.rows[1], o.h))
        f(x + d * a_.x.stride(2) + h * a_.x.stride(3), position(a_.at, d, h, 0));
  }
  std::int64_t most_lines() const { return most_taps(*a_.rows[0]) * most_taps(*a_.rows[1]); }
  S* values(const OutputLine& o) const { return a_.y.template data<S>() + o.in(a_.y); }
  std::int64_t* indices(const OutputLine& o) const {
    return a_.indices.defined() ? a_.indices.template data<std::int64_t>() + o.in(a_.indices) : nullptr;
  }

  const MaxPoolArgs& a_;
};

// In any memory order, element by element.
template <class S>
class ElementPool : MaxPool<S> {
 public:
  explicit ElementPool(const MaxPoolArgs& args) : MaxPool<S>(args) {}

  void run(const OutputLine& o) const {
    using T = Compute<S>;
    struct Line {
      const S* x;
      std::int64_t start;  // in the map
    };
    Line* const room = Workspace::begin().take<Line>(this->most_lines());
    std::size_t count = 0;
    this->each_line(o, [&](const S* x, std::int64_t start) { room[count++] = {x, start}; });
    const std::span<const Line> lines(room, count);
    const MaxPoolArgs& a = this->a_;
    S* y = this->values(o);
    std::int64_t* indices = this->indices(o);
    for (std::int64_t w_out = 0; w_out < a.y.size(4); ++w_out) {
      const std::span<const std::int64_t> taps = row(*a.rows[2], w_out);
      T best = -std::numeric_limits<T>::infinity();
      std::int64_t at = lines.empty() || taps.empty() ? -1 : lines.front().start + taps.front();
      for (const Line& line : lines)
        for (std::int64_t w : taps) {
          const T value = static_cast<T>(line.x[w * a.x.stride(4)]);
          // Passed over by what is larger and by every NaN. Without a branch: it could not be predicted.
          const bool takes =
              static_cast<bool>(static_cast<int>(value > best) | static_cast<int>(value != value));
          best = takes ? value : best;
          at = takes ? line.start + w : at;
        }
      y[w_out * a.y.stride(4)] = static_cast<S>(best);
      if (indices != nullptr) indices[w_out * a.indices.stride(4)] = at;
    }
  }
};

// Channels that lie side by side, a vector of them at a time.
template <class S>
class ChannelPool : MaxPool<S> {
 public:
  using T = Compute<S>;
  using Place = typename WindowLine<T>::Place;
  explicit ChannelPool(const MaxPoolArgs& args) : MaxPool<S>(args) {}

  bool usable() const {
    const auto side_by_side = [](const Array& x) { return !x.defined() || x.stride(1) == 1; };
    const MaxPoolArgs& a = this->a_;
    return a.x.size(1) > 1 && side_by_side(a.x) && side_by_side(a.y) && side_by_side(a.indices) &&
           counts_places<T>(a.at);
  }

  void run(const OutputLine& o) const {
    const MaxPoolArgs& a = this->a_;
    Workspace& space = Workspace::begin();
    const std::int64_t most = this->most_lines() * most_taps(*a.rows[2]);
    const std::int64_t channels = kHalf<S> ? std::min(kBlock, a.x.size(1)) : a.x.size(1);
    const Room room{space.take<const S*>(most), space.take<const T*>(most), space.take<Place>(most),
                    kHalf<S> ? space.take<T>((most + 1) * channels) : nullptr};
    for (std::int64_t w_out = 0; w_out < a.y.size(4); ++w_out) {
      typename WindowBlocks<T>::Lines lines{room.x, room.at, 0, -1};
      const std::span<const std::int64_t> taps = row(*a.rows[2], w_out);
      this->each_line(o, [&](const S* x, std::int64_t start) {
        for (std::int64_t w : taps) {
          if (lines.count == 0) lines.start = start + w;
          room.at[lines.count] = static_cast<Place>(start + w - lines.start);
          room.from[lines.count++] = x + w * a.x.stride(4);
        }
      });
      for (std::int64_t c = 0; c < a.x.size(1); c += channels)
        some(o, {w_out, c, std::min(channels, a.x.size(1) - c)}, room, lines);
    }
  }

 private:
  struct Room {
    const S** from;  // of every tap
    const T** x;
    Place* at;
    T* converted;
  };
  struct Channels {
    std::int64_t w, first, count;
  };
  void some(const OutputLine& o, const Channels& c, const Room& room,
            const typename WindowBlocks<T>::Lines& lines) const {
    const MaxPoolArgs& a = this->a_;
    S* y = this->values(o) + c.w * a.y.stride(4) + c.first;
    std::int64_t* indices = this->indices(o);
    if (indices != nullptr) indices += c.w * a.indices.stride(4) + c.first;
    for (std::int64_t t = 0; t < lines.count; ++t) {
      if constexpr (kHalf<S>) {
        T* to = room.converted + (t + 1) * c.count;
        load_block(to, room.from[t] + c.first, 1, c.count);
        room.x[t] = to;
      } else {
        room.x[t] = room.from[t] + c.first;
      }
    }
    const auto& kernel = blocks_of<T>(window_table());
    if constexpr (kHalf<S>) {
      kernel.largest_of(room.converted, indices, lines, c.count);
      store_block(y, 1, room.converted, c.count);
    } else {
      kernel.largest_of(y, indices, lines, c.count);
    }
  }
};

// Maps whose lines are contiguous, a vector of outputs at a time.
template <class S>
class LinePool : MaxPool<S> {
 public:
  using T = Compute<S>;
  using Place = typename WindowLine<T>::Place;
  explicit LinePool(const MaxPoolArgs& args) : MaxPool<S>(args), kernels_(blocks_of<T>(window_table())) {
    const auto contiguous = [](const Array& x) { return !x.defined() || x.stride(4) == 1; };
    if (!contiguous(args.x) || !contiguous(args.y) || !contiguous(args.indices) || any_empty(*args.rows[0]) ||
        any_empty(*args.rows[1]) || !counts_places<T>(args.at))
      return;
    const std::int64_t lines = args.y.numel() / args.y.size(4);
    blocks_ = {*args.rows[2], args.x.size(4), lines, WindowSum::Largest};
    most_lines_ = this->most_lines();
  }

  bool usable() const { return !blocks_.empty(); }

  // This line and those that follow it up to height `end`.
  void run(OutputLine o, std::int64_t end) const {
    const std::int64_t width = this->a_.x.size(4);
    Workspace& space = Workspace::begin();
    const Room room{space.take<const T*>(most_lines_), space.take<Place>(most_lines_),
                    kHalf<S> ? space.take<T>(most_lines_ * width) : nullptr,
                    kHalf<S> ? space.take<T>(this->a_.y.size(4)) : nullptr};
    for (; o.h < end; ++o.h) {
      typename WindowBlocks<T>::Lines lines{room.x, room.at, 0, 0};
      this->each_line(o, [&](const S* x, std::int64_t start) {
        if (lines.count == 0) lines.start = start;
        room.at[lines.count] = static_cast<Place>(start - lines.start);
        if constexpr (kHalf<S>) {
          T* to = room.converted + lines.count * width;
          load_block(to, x, 1, width);
          room.x[lines.count++] = to;
        } else {
          room.x[lines.count++] = x;
        }
      });
      if constexpr (kHalf<S>) {
        kernels_.largest(room.result, this->indices(o), lines, blocks_.line(), blocks_.blocks());
        store_block(this->values(o), 1, room.result, this->a_.y.size(4));
      } else {
        kernels_.largest(this->values(o), this->indices(o), lines, blocks_.line(), blocks_.blocks());
      }
    }
  }

 private:
  struct Room {
    const T** x;
    Place* at;
    T* converted;
    T* result;
  };

  const WindowBlocks<T>& kernels_;
  BlockedWindows<T> blocks_;
  std::int64_t most_lines_ = 0;
};

// f(first line, end of its heights) for all outputs of so many channels, some heights at a time.
template <class F>
void for_lines(const MaxPoolArgs& args, std::int64_t channels, const F& f) {
  double reads = static_cast<double>(args.y.numel());
  for (const SparseRows* rows : args.rows)
    reads *= static_cast<double>(rows->index.size()) / static_cast<double>(rows->rows());
  constexpr std::int64_t kOutputs = 4096;  // of one piece
  const std::int64_t per_line = args.y.size(4) * args.y.size(1) / channels;
  const std::int64_t depth = args.y.size(2);
  const std::int64_t height = args.y.size(3);
  const std::int64_t step = std::clamp<std::int64_t>(kOutputs / per_line, 1, height);
  const std::int64_t pieces = ceil_div(height, step);
  parallel_for(args.y.size(0) * channels * depth * pieces, threads_for(reads), [&](std::int64_t piece) {
    const std::int64_t plane = piece / pieces / depth;
    const std::int64_t h = piece % pieces * step;
    f(OutputLine{plane / channels, plane % channels, piece / pieces % depth, h}, std::min(h + step, height));
  });
}

}  // namespace

void max_pool(const MaxPoolArgs& args) {
  if (args.y.numel() == 0) return;
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const auto each = [](const auto& pool) {
      return [&pool](OutputLine o, std::int64_t end) {
        for (; o.h < end; ++o.h) pool.run(o);
      };
    };
    if (const ChannelPool<S> channels(args); channels.usable()) return for_lines(args, 1, each(channels));
    if (const LinePool<S> lines(args); lines.usable())
      return for_lines(args, args.y.size(1),
                       [&](const OutputLine& o, std::int64_t end) { lines.run(o, end); });
    const ElementPool<S> elements(args);
    for_lines(args, args.y.size(1), each(elements));
  });
}

}  // namespace tessera::cpu
