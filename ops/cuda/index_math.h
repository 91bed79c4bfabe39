// Numbers of elements taken apart. On the device.
#pragma once
#include <cstdint>

#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

struct Division {
  std::int64_t quotient;
  std::int64_t rest;
};
// Of numbers that are not negative. 64-bit division is slow on the device.
TS_DEVICE Division divided(std::int64_t a, std::int64_t b) {
  std::int64_t q = 0;
  if (((a | b) >> 32) == 0) {
    q = static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  } else {
    q = a / b;
  }
  return {q, a - q * b};
}

// The first position in sorted [0, n) whose number is not less than `wanted`.
template <class Numbers, class T>
TS_DEVICE std::int64_t lower_bound(const Numbers& numbers, std::int64_t n, T wanted) {
  std::int64_t lo = 0;
  while (n > 0) {
    const std::int64_t half = n / 2;
    if (numbers[lo + half] < wanted) {
      lo += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return lo;
}

}  // namespace tessera::cuda
