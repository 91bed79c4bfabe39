#include "ops/window/window_blocks.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/block_io.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kLeastLines = 6;  // by then a table is paid for
constexpr std::int64_t kMostTaps = 64;

std::int64_t taps_of(const SparseRows& rows, std::int64_t output) {
  const auto o = static_cast<std::size_t>(output);
  return rows.first[o + 1] - rows.first[o];
}

}  // namespace

template <class T>
bool BlockedWindows<T>::worth_it(const SparseRows& rows, std::int64_t columns, std::int64_t lines) {
  if (lanes_ == 0 || rows.rows() < lanes_ || lines < kLeastLines) return false;
  if (columns > std::numeric_limits<std::int32_t>::max()) return false;
  std::int64_t least = kMostTaps;
  for (std::int64_t o = 0; o < rows.rows(); ++o) {
    const std::int64_t taps = taps_of(rows, o);
    if (taps > kMostTaps) return false;
    taps_ = std::max(taps_, taps);
    least = std::min(least, taps);
  }
  ragged_ = kind_ == WindowSum::Weighted && least < taps_;
  // Every output makes as many steps as the widest window. The largest of nothing has no place.
  const bool even = taps_ * rows.rows() <= 2 * static_cast<std::int64_t>(rows.index.size());
  return taps_ > 0 && even && (kind_ == WindowSum::Weighted || least > 0);
}

// Where an output reads; -1: it has no such tap. Its last one once more changes no largest value, nor its
// place.
template <class T>
std::int64_t BlockedWindows<T>::place_of(const SparseRows& rows, std::int64_t output,
                                         std::int64_t tap) const {
  const std::int64_t taps = taps_of(rows, output);
  if (tap >= taps && kind_ == WindowSum::Weighted) return -1;
  return rows.index[static_cast<std::size_t>(rows.first[static_cast<std::size_t>(output)] +
                                             std::min(tap, taps - 1))];
}

template <class T>
typename BlockedWindows<T>::Reach BlockedWindows<T>::reach_of(const SparseRows& rows, std::int64_t output,
                                                              std::int64_t tap) const {
  Reach r{std::numeric_limits<std::int64_t>::max(), -1};
  for (std::int64_t o = output; o < output + lanes_; ++o) {
    const std::int64_t place = place_of(rows, o, tap);
    if (place < 0) continue;
    r.lo = std::min(r.lo, place);
    r.hi = std::max(r.hi, place);
  }
  return r.hi < 0 ? Reach{0, 0} : r;
}

template <class T>
void BlockedWindows<T>::choose_vectors(const SparseRows& rows, std::int64_t columns) {
  std::int64_t widest = 1;
  for (const std::int64_t output : output_)
    for (std::int64_t t = 0; t < taps_; ++t) {
      const Reach r = reach_of(rows, output, t);
      widest = std::max(widest, r.hi - r.lo + 1);
    }
  vectors_ = (widest + lanes_ - 1) / lanes_;
  if (vectors_ > 2 || vectors_ * lanes_ > columns) vectors_ = 0;
}

template <class T>
void BlockedWindows<T>::add_lane(std::int64_t place, std::int64_t from) {
  constexpr auto kParts = static_cast<std::int64_t>(sizeof(T) / sizeof(std::int32_t));
  for (std::int64_t part = 0; part < kParts; ++part) {
    const std::int64_t at = vectors_ == 0 ? place : (place - from) * kParts + part;
    order_.push_back(static_cast<std::int32_t>(place < 0 ? -1 : at));
  }
}

template <class T>
void BlockedWindows<T>::add_tap(const SparseRows& rows, std::int64_t columns, std::int64_t output,
                                std::int64_t tap) {
  // All that is loaded lies in the line.
  const std::int64_t from = std::min(reach_of(rows, output, tap).lo, columns - vectors_ * lanes_);
  from_.push_back(from);
  for (std::int64_t o = output; o < output + lanes_; ++o) {
    const std::int64_t place = place_of(rows, o, tap);
    add_lane(place, from);
    if (kind_ == WindowSum::Largest) {
      place_.push_back(static_cast<typename WindowLine<T>::Place>(place));
    } else if (place < 0) {
      weight_.push_back(tap == 0 ? T(0) : T(-0.0));
    } else {
      const std::int64_t entry = rows.first[static_cast<std::size_t>(o)] + tap;
      weight_.push_back(static_cast<T>(rows.weight[static_cast<std::size_t>(entry)]));
    }
  }
}

// The first run of blocks whose every tap takes every other number; borders and the end of a line may not.
template <class T>
void BlockedWindows<T>::find_even() {
  if (vectors_ != 2) return;
  constexpr auto kParts = static_cast<std::int32_t>(sizeof(T) / sizeof(std::int32_t));
  const auto even = [&](std::int64_t block) {
    const std::int32_t* order = order_.data() + block * taps_ * lanes_ * kParts;
    for (std::int64_t tap = 0; tap < taps_; ++tap)
      for (std::int32_t lane = 0; lane < lanes_; ++lane, order += kParts)
        if (*order != 2 * kParts * lane) return false;  // a double's second half follows its first
    return true;
  };
  while (even_.lo < blocks() && !even(even_.lo)) ++even_.lo;
  even_.hi = even_.lo;
  while (even_.hi < blocks() && even(even_.hi)) ++even_.hi;
}

template <class T>
BlockedWindows<T>::BlockedWindows(const SparseRows& rows, std::int64_t columns, std::int64_t lines,
                                  WindowSum kind)
    : lanes_(blocks_of<T>(window_table()).lanes), kind_(kind) {
  if (!worth_it(rows, columns, lines)) return;
  for (std::int64_t o = 0; o < rows.rows(); o += lanes_) output_.push_back(std::min(o, rows.rows() - lanes_));
  choose_vectors(rows, columns);
  const std::size_t entries = output_.size() * static_cast<std::size_t>(taps_);
  from_.reserve(entries);
  order_.reserve(entries * static_cast<std::size_t>(lanes_) * sizeof(T) / sizeof(std::int32_t));
  for (const std::int64_t output : output_)
    for (std::int64_t t = 0; t < taps_; ++t) add_tap(rows, columns, output, t);
  find_even();
}

template class BlockedWindows<float>;
template class BlockedWindows<double>;

}  // namespace tessera::cpu
