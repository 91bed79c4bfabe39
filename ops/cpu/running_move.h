// How running statistics move, for the CPU and the device.
#pragma once
#include <cstdint>

#include "runtime/portable.h"

namespace tessera::cpu {

// Of statistics of `count` elements in all, those of one sample `row` (0: of all samples together).
struct RunningMove {
  double keep, factor;
  bool variance;
  TS_PORTABLE RunningMove(double count, double row, double momentum, bool of_variance)
      : keep(1.0 - momentum), variance(of_variance) {
    const double samples = row == 0 ? 1.0 : count / row;
    const double n = count / samples;
    factor = momentum * ((of_variance ? n / (n - 1.0) : 1.0) / samples);
  }
  // `value`: the sum of the statistic over the samples.
  TS_PORTABLE double moved(double kept, double value) const { return keep * kept + factor * value; }
};

}  // namespace tessera::cpu
