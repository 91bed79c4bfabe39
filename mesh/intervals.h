// Arithmetic on intervals and lists of them.
#pragma once
#include "mesh/spec.h"

namespace tessera {

// Quotients rounded up and down; b is positive.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -((-a) / b);
}
inline std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Elements of all intervals together.
inline std::int64_t total_length(const Intervals& list) {
  std::int64_t n = 0;
  for (const Interval i : list) n += i.length();
  return n;
}

// Positions [lo, hi) counted along the list, as intervals.
inline Intervals part_of(const Intervals& list, Interval positions) {
  Intervals out;
  std::int64_t at = 0;
  for (const Interval i : list) {
    const Interval shared = intersect(positions, {at, at + i.length()});
    if (!shared.empty()) out.push_back({i.lo + shared.lo - at, i.lo + shared.hi - at});
    at += i.length();
  }
  return out;
}

}  // namespace tessera
