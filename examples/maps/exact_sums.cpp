#include "examples/maps/exact_sums.h"

#include <algorithm>
#include <cmath>

#include "runtime/error.h"

namespace tessera::maps {
namespace {
constexpr double kUnit = 268435456.0;  // 2^28
constexpr double kLargest = 4.0e18;    // of a sum in units
}  // namespace

void ExactSums::add(std::size_t which, double term) {
  absolute_[which] += std::abs(term);
  // Past this the integer would overflow; reduce() then refuses.
  if (absolute_[which] * kUnit < kLargest) sums_[which] += std::llround(term * kUnit);
}

std::vector<double> ExactSums::reduce(const Communicator& comm, const std::string& summed) const {
  const auto n = static_cast<std::int64_t>(sums_.size());
  const Array bound = Array::from(absolute_, {n}, DType::F64);
  comm.all_reduce(bound, ReduceOp::Sum).wait();
  for (const double b : bound.to_vector())
    TS_CHECK(b * kUnit < kLargest, "sums", "{} come to {} over the map, which is not below 1.5e10", summed,
             b);
  const Array total = Array::empty({n}, DType::I64);
  std::copy(sums_.begin(), sums_.end(), total.data<std::int64_t>());
  comm.all_reduce(total, ReduceOp::Sum).wait();
  std::vector<double> result;
  for (std::int64_t i = 0; i < n; ++i)
    result.push_back(static_cast<double>(total.data<std::int64_t>()[i]) / kUnit);
  return result;
}

}  // namespace tessera::maps
