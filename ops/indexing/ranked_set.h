// A set of numbers from 0 to n - 1 that knows how many come before each of its members: one bit a number.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace tessera {

class RankedSet {
 public:
  explicit RankedSet(std::int64_t n)
      : words_(static_cast<std::size_t>(n / 64 + 1), 0), before_(words_.size() + 1, 0) {}
  void insert(std::int64_t i) { words_[word(i)] |= bit(i); }
  // After the last insertion.
  void count() {
    for (std::size_t w = 0; w < words_.size(); ++w) before_[w + 1] = before_[w] + std::popcount(words_[w]);
  }
  std::int64_t size() const { return before_.back(); }
  std::int64_t rank(std::int64_t i) const {
    return before_[word(i)] + std::popcount(words_[word(i)] & (bit(i) - 1));
  }
  // f(member) in ascending order.
  template <class F>
  void for_each(const F& f) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
        f(static_cast<std::int64_t>(w) * 64 + std::countr_zero(rest));
  }

 private:
  static std::size_t word(std::int64_t i) { return static_cast<std::size_t>(i) / 64; }
  static std::uint64_t bit(std::int64_t i) {
    return std::uint64_t{1} << (static_cast<std::uint64_t>(i) % 64);
  }
  std::vector<std::uint64_t> words_;
  std::vector<std::int64_t> before_;
};

}  // namespace tessera
