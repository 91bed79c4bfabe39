#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera::maps {

// Sums over cells and ranks whose bits depend on neither partition nor order: every term is rounded to a
// multiple of 2^-28 and added as an integer. Choose units in which that is exact enough.
class ExactSums {
 public:
  explicit ExactSums(std::size_t n) : sums_(n), absolute_(n) {}
  void add(std::size_t which, double term);
  // Collective over `comm`. Refuses, on all ranks, sums whose terms come to more than 1.5e10 in absolute
  // value, saying what was `summed`.
  std::vector<double> reduce(const Communicator& comm, const std::string& summed) const;

 private:
  std::vector<std::int64_t> sums_;
  std::vector<double> absolute_;  // sums of the absolute values, to tell when an integer would overflow
};

}  // namespace tessera::maps
