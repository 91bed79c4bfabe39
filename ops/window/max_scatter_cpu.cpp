#include <array>

#include "ops/cpu/block_io.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/window_table.h"
#include "ops/window/max_pool_places.h"

namespace tessera::cpu {
namespace {

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
  bool straight() const { return per_line_ == 0 && per_plane_ == 0; }
  template <bool kStraight>
  std::int64_t of(std::int64_t position) const {
    const std::int64_t offset = start_ + position * step_;
    if constexpr (kStraight) return offset;
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

// One line of outputs: `count` channels at each of `width` positions.
template <class T>
struct OutputLine {
  T* y;
  const std::int64_t* indices;
  T* buffer;  // of the first channel
  std::int64_t count, width;
  bool once;  // no other writes to the places of its windows
};

// Whether every position of a dim is read by one output.
bool tiles(const SparseRows& rows, std::int64_t size) {
  for (std::size_t i = 0; i < rows.index.size(); ++i)
    if (rows.index[i] != static_cast<std::int64_t>(i)) return false;
  return static_cast<std::int64_t>(rows.index.size()) == size;
}

template <class T>
class Follower {
 public:
  explicit Follower(const ScatterMaxArgs& a) : a_(a), place_(a.at, a.buffer) {
    for (int d = 0; d < 3; ++d)
      tiled_ = tiled_ && tiles(*a.rows[static_cast<std::size_t>(d)], a.buffer.size(d + 2));
  }

  // f(y element, buffer element) for every output of sample n whose index is in the map, for some
  // channels. If that adds up (`scatters`), the buffer's lines are set to 0 as late as can be: they
  // are still in cache when the sums arrive. Windows that go through all places, each of which is in one
  // window alone, need no zeros before.
  template <class F>
  void run(std::int64_t n, Interval channels, bool scatters, F f) const {
    const Array& y = a_.y;
    T* buffer = a_.buffer.data<T>() + offset(a_.buffer, n, channels.lo);
    const std::int64_t in_y = offset(y, n, channels.lo);
    const std::int64_t in_indices = offset(a_.indices, n, channels.lo);
    const std::int64_t lines = a_.buffer.size(2) * a_.buffer.size(3);
    const bool once =
        scatters && tiled_ && by_lanes(most_taps(*a_.rows[0]) * most_taps(*a_.rows[1]), channels.length());
    std::int64_t zeroed = scatters && !once ? 0 : lines;
    for (std::int64_t d = 0; d < y.size(2); ++d)
      for (std::int64_t h = 0; h < y.size(3); ++h) {
        for (const std::int64_t needed = lines_read(d, h); zeroed < needed; ++zeroed)
          zero(buffer, zeroed, channels.length());
        const std::int64_t* indices = a_.indices.data<std::int64_t>() + in_indices +
                                      d * a_.indices.stride(2) + h * a_.indices.stride(3);
        const OutputLine<T> line{y.data<T>() + in_y + d * y.stride(2) + h * y.stride(3),
                                 indices,
                                 buffer,
                                 channels.length(),
                                 y.size(4),
                                 once};
        const auto read = std::ssize(row(*a_.rows[0], d)) * std::ssize(row(*a_.rows[1], h));
        follow_line(line, scatters && by_lanes(read, line.count), {d, h}, f);
      }
    for (; zeroed < lines; ++zeroed) zero(buffer, zeroed, channels.length());
  }

 private:
  // The number of the buffer's lines up to the last one that an output reads.
  std::int64_t lines_read(std::int64_t d, std::int64_t h) const {
    const std::span<const std::int64_t> depth = row(*a_.rows[0], d);
    const std::span<const std::int64_t> height = row(*a_.rows[1], h);
    return depth.empty() || height.empty() ? 0 : depth.back() * a_.buffer.size(3) + height.back() + 1;
  }

  void zero(T* buffer, std::int64_t line, std::int64_t count) const {
    const Array& b = a_.buffer;
    T* to = buffer + line / b.size(3) * b.stride(2) + line % b.size(3) * b.stride(3);
    const std::int64_t width = b.size(4);
    if (b.stride(4) == count && (count == 1 || b.stride(1) == 1)) {
      std::fill_n(to, width * count, T(0));
      return;
    }
    for (std::int64_t w = 0; w < width; ++w)
      for (std::int64_t c = 0; c < count; ++c) to[w * b.stride(4) + c * b.stride(1)] = T(0);
  }

  // Channels that lie side by side go through the few places of their window together: comparing is quicker
  // there than going where every index points.
  bool by_lanes(std::int64_t lines, std::int64_t count) const {
    constexpr std::int64_t kFewLines = 4;
    constexpr std::int64_t kFewTaps = 4;
    constexpr std::int64_t kLeast = 8;
    const SparseRows& wide = *a_.rows[2];
    const auto taps = static_cast<std::int64_t>(wide.index.size());
    return count >= kLeast && a_.y.stride(1) == 1 && a_.indices.stride(1) == 1 && a_.buffer.stride(1) == 1 &&
           lines <= kFewLines && taps <= kFewTaps * wide.rows();
  }
  void add_lanes(std::int64_t d_out, std::int64_t h_out, const OutputLine<T>& l) const {
    const Array& b = a_.buffer;
    const auto& kernels = blocks_of<Compute<T>>(window_table());
    const auto where = l.once ? kernels.put_where : kernels.add_where;
    for (std::int64_t w_out = 0; w_out < l.width; ++w_out) {
      const T* y = l.y + w_out * a_.y.stride(4);
      const std::int64_t* indices = l.indices + w_out * a_.indices.stride(4);
      for (std::int64_t d : row(*a_.rows[0], d_out))
        for (std::int64_t h : row(*a_.rows[1], h_out)) {
          T* to = l.buffer + d * b.stride(2) + h * b.stride(3);
          const std::int64_t line = position(a_.at, d, h, 0);
          for (std::int64_t w : row(*a_.rows[2], w_out))
            where(to + w * b.stride(4), y, indices, line + w, l.count);
        }
    }
  }

  template <class F>
  void follow_line(const OutputLine<T>& l, bool lanes, std::array<std::int64_t, 2> at, F f) const {
    if constexpr (!kHalf<T>) {
      if (lanes) return add_lanes(at[0], at[1], l);
    }
    if (place_.straight()) {
      follow<true>(l, f);
    } else {
      follow<false>(l, f);
    }
  }

  template <bool kStraight, class F>
  void follow(const OutputLine<T>& l, F f) const {
    const BufferOffset place = place_;
    const auto some = [&](std::int64_t start_y, std::int64_t start_index, const Steps& by, std::int64_t n) {
      T* y = l.y + start_y;
      const std::int64_t* indices = l.indices + start_index;
      T* buffer = l.buffer;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = indices[i * by.index];
        if (at >= 0) f(y[i * by.y], buffer[i * by.buffer + place.template of<kStraight>(at)]);
      }
    };
    const std::int64_t wide_y = a_.y.stride(4);
    const std::int64_t wide_index = a_.indices.stride(4);
    if (l.count == 1) return some(0, 0, {wide_y, wide_index, 0}, l.width);
    const Steps by{a_.y.stride(1), a_.indices.stride(1), a_.buffer.stride(1)};
    for (std::int64_t w = 0; w < l.width; ++w) some(w * wide_y, w * wide_index, by, l.count);
  }
  struct Steps {
    std::int64_t y, index, buffer;
  };

  const ScatterMaxArgs& a_;
  BufferOffset place_;
  bool tiled_ = true;
};

// Several channels in one piece where they lie side by side.
template <class T, class F>
void follow(const ScatterMaxArgs& a, bool zeroing, F f) {
  const Follower<T> follower(a);
  const std::int64_t block = a.y.stride(1) == 1 ? 32 : 1;
  const std::int64_t blocks = ceil_div(a.y.size(1), block);
  parallel_for(a.y.size(0) * blocks, threads_for(static_cast<double>(a.y.numel()) * 8),
               [&](std::int64_t piece) {
                 const std::int64_t first = piece % blocks * block;
                 follower.run(piece / blocks, {first, std::min(first + block, a.y.size(1))}, zeroing, f);
               });
}

}  // namespace

void scatter_max(const ScatterMaxArgs& args) {
  if (args.buffer.numel() == 0) return;
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!kHalf<T>) follow<T>(args, true, [](T y, T& to) { to += y; });
  });
}

void gather_max(const ScatterMaxArgs& args) {
  args.y.zero_();
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    follow<T>(args, false, [](T& y, T from) { y = from; });
  });
}

}  // namespace tessera::cpu
