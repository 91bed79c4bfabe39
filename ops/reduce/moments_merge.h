// Merging means and squared deviations of parts (Chan, Golub, LeVeque 1979).
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

// parts [P, 2, rows] (mean, m2), counts: elements per row in each part. mean, m2: [rows] contiguous,
// overwritten.
struct MergeMomentsArgs {
  Array mean;
  Array m2;
  Array parts;
  std::vector<double> counts;
};
void merge_moments(const MergeMomentsArgs& args);

}  // namespace tessera::cpu
