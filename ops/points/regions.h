// Space divided into as many regions as there are ranks, each with its share of a cloud.
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu::points {

// A tree of planes across one dim each. Coordinates below `at` are on the `less` side; a side is another cut
// (its number) or a region (-1 - its number).
struct RegionCut {
  int dim = 0;
  double at = 0;
  int less = 0;
  int rest = 0;
};
struct Regions {
  std::vector<RegionCut> cuts;  // the first is the root; none: one region
  double heaviest = 0;          // the largest region's weight, in equal shares
};

// Halves the weight again and again, each time across the longest side of what is left; a box's weight counts
// as spread evenly over it. boxes [n, 2, dims], weights [n] f64. The same numbers wherever it is called.
Regions divide(const Array& boxes, const Array& weights, int regions);

// out [n] i64: the region of each row of x [n, dims].
struct AssignRegionsArgs {
  Array out;
  Array x;
  Regions regions;
};
void assign_regions(const AssignRegionsArgs& args);

}  // namespace tessera::cpu::points
