#include "examples/relief/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/error.h"

namespace tessera::relief {
namespace {

constexpr double kMetresPerUnit = 1000.0;  // sums are made in km²
constexpr std::size_t kSums = 4;           // squares, count, weighted squares, weights

Score::Errors errors_of(std::span<const double> sums) {
  return {kMetresPerUnit * std::sqrt(sums[0] / sums[1]), kMetresPerUnit * std::sqrt(sums[2] / sums[3])};
}

std::array<double, 6> figures(const Score& s) {
  return {s.land.plain, s.land.weighted, s.sea.plain, s.sea.weighted, s.all.plain, s.all.weighted};
}

}  // namespace

Score score_of(const std::string& name, const ReliefData& data, const Tensor& heights, Where where) {
  TS_CHECK(heights.is_sharded() && same_layout(*heights.spec(), *data.truth().spec()), kProgram,
           "the heights of '{}' are not cut like the truth", name);
  const std::vector<double> guess = heights.local().to_vector();
  const std::vector<double> truth = data.truth().local().to_vector();
  maps::ExactSums sums(2 * kSums);  // land, then sea
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if ((data.held_out()[i] != 0) != (where == Where::HeldOut)) continue;
    const double error = (guess[i] - truth[i]) / kMetresPerUnit;
    const std::size_t first = truth[i] > 0 ? 0 : kSums;
    sums.add(first, error * error);
    sums.add(first + 1, 1.0);
    sums.add(first + 2, data.weights()[i] * error * error);
    sums.add(first + 3, data.weights()[i]);
  }
  const std::vector<double> total =
      sums.reduce(data.cut().domain.comm(), fmt::format("the errors of {}", name));
  std::array<double, kSums> both{};
  for (std::size_t i = 0; i < kSums; ++i) both[i] = total[i] + total[kSums + i];
  const std::span<const double> each(total);
  return {name, errors_of(each.first(kSums)), errors_of(each.last(kSums)), errors_of(both)};
}

std::string score_table(std::span<const Score> scores) {
  std::size_t width = 0;
  std::array<double, 6> least;
  least.fill(INFINITY);
  for (const Score& s : scores) {
    width = std::max(width, s.name.size());
    for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::fmin(least[i], figures(s)[i]);
  }
  std::string text =
      fmt::format("{:<{}}  {:<20}{:<20}{:<20}\n{:<{}}", "", width, "land", "sea", "both", "", width);
  for (int i = 0; i < 3; ++i) text += "  plain    weighted";
  text += "\n";
  for (const Score& s : scores) {
    text += fmt::format("{:<{}}", s.name, width);
    for (std::size_t i = 0; i < least.size(); ++i) {
      const double figure = figures(s)[i];
      text += std::isnan(figure) ? fmt::format("{:>8}  ", "none")
                                 : fmt::format("{:>8.1f} {}", figure, figure == least[i] ? "*" : " ");
    }
    text += "\n";
  }
  return text + "(* lowest; weighted: by cos(latitude))\n";
}

}  // namespace tessera::relief
