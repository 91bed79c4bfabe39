// Random choices that are the same on every machine: a generator with a fixed definition, and no
// distributions of the standard library, whose results differ between implementations.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::verify {

class Random {
 public:
  Random(std::uint64_t seed, std::string_view name, std::uint64_t number) {
    state_ = seed;
    for (const char c : name) state_ = mix(state_ ^ static_cast<unsigned char>(c));
    state_ = mix(state_ ^ mix(number));
  }
  // Uniform in [lo, hi], both included.
  std::int64_t integer(std::int64_t lo, std::int64_t hi) {
    state_ += 0x9e3779b97f4a7c15ULL;
    return lo + static_cast<std::int64_t>(mix(state_) % static_cast<std::uint64_t>(hi - lo + 1));
  }
  bool chance(int percent) { return integer(0, 99) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

 private:
  // SplitMix64's finaliser (Steele, Lea and Flood 2014).
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  }
  std::uint64_t state_ = 0;
};

}  // namespace tessera::verify
