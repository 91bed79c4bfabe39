// Merging means and squared deviations of parts (Chan, Golub, LeVeque 1979).
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

// parts [P, 3, rows]: the mean in two terms (so that a mean far from zero keeps its digits in float32) and
// m2; counts: elements per row in each part: one number a part, or as many as there are kinds of rows (row r
// is of kind r modulo their number). mean, rest (mean + rest is the mean) and m2: [rows] contiguous,
// overwritten.
struct MergeMomentsArgs {
  Array mean;
  Array rest;
  Array m2;
  Array parts;
  std::vector<double> counts;
  Array counts_there = {};  // beside a device, instead of counts: F64 [P] in its memory, one number a part
};
void merge_moments(const MergeMomentsArgs& args);

}  // namespace tessera::cpu
