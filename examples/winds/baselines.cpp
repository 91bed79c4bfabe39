#include "examples/winds/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/error.h"

namespace tessera::winds {

void ScoreSums::add(int month, const Array& forecast) {
  const Dims sizes{kOutputs, data_->rows(), data_->cols()};
  TS_CHECK(forecast.sizes() == sizes, "winds", "the forecast has sizes {}, wanted are {}",
           forecast.sizes().str(), sizes.str());
  const std::vector<double> values = forecast.to_vector();
  const std::vector<double>& weights = data_->weights();
  for (int component = 0; component < kOutputs; ++component) {
    const auto truth = data_->wind(month, component);
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const double error = values[static_cast<std::size_t>(component) * truth.size() + i] - truth[i];
      sums_.add(0, error * error);
      sums_.add(1, 1.0);
      sums_.add(2, weights[i] * error * error);
      sums_.add(3, weights[i]);
    }
  }
}

Score ScoreSums::reduce(const std::string& name, const Communicator& comm) const {
  const std::vector<double> total = sums_.reduce(comm, fmt::format("the errors of {}", name));
  TS_CHECK(total[1] > 0, "winds", "'{}' is scored on no month", name);
  return {name, std::sqrt(total[0] / total[1]), std::sqrt(total[2] / total[3])};
}

std::vector<Score> baseline_scores(const WindData& data) {
  // Forecast of one cell from the wind a month ago, the climatology of both months, and the cell's own
  // damping.
  struct Baseline {
    const char* name;
    std::function<double(double before, double clim_before, double clim, double damping)> forecast;
  };
  const double one = data.overall_damping();
  const std::vector<Baseline> baselines = {
      {"persistence", [](double before, double, double, double) { return before; }},
      {"climatology of the training months", [](double, double, double clim, double) { return clim; }},
      {"damped anomaly persistence, one coefficient",
       [one](double before, double clim_before, double clim, double) {
         return clim + one * (before - clim_before);
       }},
      {"damped anomaly persistence, per cell and component",
       [](double before, double clim_before, double clim, double k) {
         return clim + k * (before - clim_before);
       }},
  };
  std::vector<Score> scores;
  for (const Baseline& baseline : baselines) {
    ScoreSums sums(data);
    for (const int month : data.test_months()) {
      std::vector<double> forecast;
      for (int c = 0; c < kOutputs; ++c)
        for (std::size_t i = 0; i < static_cast<std::size_t>(data.cells()); ++i)
          forecast.push_back(baseline.forecast(data.wind(month - 1, c)[i], data.climatology(month - 1, c)[i],
                                               data.climatology(month, c)[i], data.damping(c)[i]));
      sums.add(month, Array::from(forecast, {kOutputs, data.rows(), data.cols()}, DType::F64));
    }
    scores.push_back(sums.reduce(baseline.name, data.domain()));
  }
  return scores;
}

std::string score_table(std::span<const Score> scores) {
  std::size_t width = 0;
  double plain = 1e300;
  double weighted = 1e300;
  for (const Score& s : scores) {
    width = std::max(width, s.name.size());
    plain = std::min(plain, s.plain);
    weighted = std::min(weighted, s.weighted);
  }
  std::string text = fmt::format("{:<{}}   plain    weighted\n", "RMSE in m/s, held-out months", width);
  for (const Score& s : scores)
    text += fmt::format("{:<{}}   {:.3f}{}   {:.3f}{}\n", s.name, width, s.plain,
                        s.plain == plain ? " *" : "  ", s.weighted, s.weighted == weighted ? " *" : "");
  return text + "(* lowest; weighted: by cos(latitude))\n";
}

}  // namespace tessera::winds
