#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tessera::verify {
namespace {

double error_of(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return 0.0;
  const double error = std::abs(got - want);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

std::string index_str(std::int64_t linear, const Dims& sizes) {
  Dims index = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    index[d] = linear % sizes[d];
    linear /= sizes[d];
  }
  return index.str();
}

}  // namespace

std::string difference(const Array& got, const Array& want, double allowed) {
  if (!(got.sizes() == want.sizes()))
    return fmt::format("has sizes {}, want {}", got.sizes().str(), want.sizes().str());
  if (is_floating(got.dtype()) != is_floating(want.dtype()) ||
      (!is_floating(want.dtype()) && got.dtype() != want.dtype()))
    return fmt::format("is {}, want {}", name_of(got.dtype()), name_of(want.dtype()));
  const std::vector<double> g = got.to_vector();
  const std::vector<double> w = want.to_vector();
  double worst = 0.0;
  std::size_t at = 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double error = error_of(g[i], w[i]);
    wrong += error > allowed ? 1 : 0;
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  if (wrong == 0) return {};
  return fmt::format("at {}: got {:.9g}, want {:.9g}, error {:.3g}, allowed {:.3g} ({} of {} elements wrong)",
                     index_str(static_cast<std::int64_t>(at), want.sizes()), g[at], w[at], worst, allowed,
                     wrong, w.size());
}

double allowed_in_f64(const Array& want, double stated) {
  double largest = 0.0;
  for (const double v : want.to_vector())
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return std::max(1e-7 * largest, 1e-4 * stated);
}

}  // namespace tessera::verify
