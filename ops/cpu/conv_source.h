// A map read line by line along its last spatial dim, channels innermost: each line with what the windows
// read beyond its ends (zeros). Where that is nothing, lines are read where they lie; else they are copied,
// once each, into a ring of lines. Internal to the kernels that work line by line.
#pragma once
#include <algorithm>
#include <cstring>

#include "ops/cpu/workspace.h"
#include "runtime/array.h"

namespace tessera::cpu {

// Strides count elements. Two outer dims (of size 1 where there are fewer).
template <class T>
struct SourceMap {
  const T* data = nullptr;  // of the group's first channel
  std::int64_t sample = 0;
  std::int64_t outer[2] = {0, 0};
  std::int64_t step = 0;  // from position to position
  std::int64_t channel = 1;
  std::int64_t sizes[2] = {1, 1};
  std::int64_t size = 0;  // positions of a line
  std::int64_t channels = 0;
  std::int64_t before = 0;  // zeros before the line's start; less than 0: so many positions are left out
  std::int64_t length = 0;  // positions that are read
  // Lines that are in use at the same time, by outer dim; `planes`: all lines of the inner one are.
  std::int64_t span[2] = {1, 1};
  bool planes = false;
  // More than 0: lines are copied always, with so many channels a position. Those beyond the map's are 0 as
  // far as they fill its last cache line, and else undefined.
  std::int64_t held_channels = 0;

  // Whether zeros are read.
  bool beyond() const { return before > 0 || length - before > size; }
  bool copied() const { return beyond() || channel != 1 || held_channels > 0; }
};

// What lies between channels; 1 where there is one.
inline std::int64_t channel_step(const Array& map) { return map.size(1) == 1 ? 1 : map.stride(1); }

template <class T>
class SourceLines {
 public:
  SourceLines(const SourceMap<T>& map, Workspace& space) : m_(map), step_(map.step) {
    if (!m_.copied()) return;
    step_ = std::max(m_.channels, m_.held_channels);
    if (m_.planes) m_.span[1] = m_.sizes[1];
    const std::int64_t slots = m_.span[0] * m_.span[1];
    held_ = space.take<std::int64_t>(slots);
    ring_ = space.take<T>(slots * m_.length * step_);
    std::fill(held_, held_ + slots, std::int64_t{-1});
  }
  // Elements from position to position.
  std::int64_t step() const { return step_; }

  // The line from the first position that is read on. Valid until as many others as the span were asked for.
  const T* line(std::int64_t sample, std::int64_t u, std::int64_t v) {
    const T* from = map_line(sample, u, v);
    if (!m_.copied()) return from - m_.before * m_.step;
    const std::int64_t slot = slot_of(u, v);
    T* to = ring_ + slot * m_.length * step_;
    const std::int64_t id = id_of(sample, u, v);
    if (held_[slot] == id) return to;
    held_[slot] = id;
    copy(to, from);
    return to;
  }

  // The line will be asked for soon: what of it is not held yet may be on its way to the cache.
  void announce(std::int64_t sample, std::int64_t u, std::int64_t v) const {
    if (!m_.copied() || m_.channel != 1 || held_[slot_of(u, v)] == id_of(sample, u, v)) return;
    const T* from = map_line(sample, u, v);
    const std::int64_t lo = std::clamp<std::int64_t>(-m_.before, 0, m_.size);
    const std::int64_t hi = std::clamp<std::int64_t>(m_.length - m_.before, lo, m_.size);
    for (std::int64_t i = lo; i < hi; ++i)
      for (std::int64_t c = 0; c < m_.channels; c += kCacheLine)
        __builtin_prefetch(from + i * m_.step + c, 0, 2);
  }

 private:
  const T* map_line(std::int64_t sample, std::int64_t u, std::int64_t v) const {
    return m_.data + sample * m_.sample + u * m_.outer[0] + v * m_.outer[1];
  }
  std::int64_t slot_of(std::int64_t u, std::int64_t v) const {
    return u % m_.span[0] * m_.span[1] + v % m_.span[1];
  }
  std::int64_t id_of(std::int64_t sample, std::int64_t u, std::int64_t v) const {
    return (sample * m_.sizes[0] + u) * m_.sizes[1] + v;
  }
  void copy(T* to, const T* from) const {
    const std::int64_t lo = std::clamp<std::int64_t>(m_.before, 0, m_.length);
    const std::int64_t hi = std::clamp<std::int64_t>(m_.size + m_.before, lo, m_.length);
    std::fill(to, to + lo * step_, T(0));
    copy_positions(to + lo * step_, from + (lo - m_.before) * m_.step, hi - lo);
    std::fill(to + hi * step_, to + m_.length * step_, T(0));
  }
  void copy_positions(T* to, const T* from, std::int64_t n) const {
    if (step_ > m_.channels && m_.channels % kCacheLine != 0) std::fill(to, to + n * step_, T(0));
    if (m_.channel != 1) {
      for (std::int64_t c = 0; c < m_.channels; ++c)
        for (std::int64_t i = 0; i < n; ++i) to[i * step_ + c] = from[i * m_.step + c * m_.channel];
    } else if (m_.step == step_ && m_.channels == step_) {
      std::copy(from, from + n * step_, to);
    } else if (m_.channels % kCacheLine == 0) {
      for (std::int64_t i = 0; i < n; ++i, from += m_.step, to += step_)
        for (std::int64_t c = 0; c < m_.channels; c += kCacheLine)
          std::memcpy(to + c, from + c, 64);  // no call
    } else {
      for (std::int64_t i = 0; i < n; ++i, from += m_.step)
        std::copy(from, from + m_.channels, to + i * step_);
    }
  }

  static constexpr std::int64_t kCacheLine = 64 / sizeof(T);
  SourceMap<T> m_;
  std::int64_t step_;
  std::int64_t* held_ = nullptr;
  T* ring_ = nullptr;
};

}  // namespace tessera::cpu
