#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/error.h"

namespace tessera::optim {

Schedule constant(double lr) {
  return [lr](std::int64_t) { return lr; };
}

Schedule linear(double from, double to, std::int64_t steps) {
  TS_CHECK(steps >= 1, "linear", "{} steps given, at least 1 is needed", steps);
  return [=](std::int64_t step) {
    const double t =
        static_cast<double>(std::clamp<std::int64_t>(step, 0, steps)) / static_cast<double>(steps);
    return from + (to - from) * t;
  };
}

Schedule step_decay(double lr, std::int64_t every, double gamma) {
  TS_CHECK(every >= 1, "step_decay", "a decay every {} steps; at least 1 is needed", every);
  return [=](std::int64_t step) {
    const std::int64_t decays = step / every;
    return lr * std::pow(gamma, static_cast<double>(decays));
  };
}

Schedule warmup_cosine(const WarmupCosine& options) {
  TS_CHECK(options.warmup >= 0 && options.total >= options.warmup, "warmup_cosine",
           "{} steps of warm-up in {} steps; 0 <= warmup <= total is needed", options.warmup, options.total);
  return [o = options](std::int64_t step) {
    if (step < o.warmup) return o.peak * static_cast<double>(step + 1) / static_cast<double>(o.warmup);
    if (step >= o.total) return o.floor;
    const double t = static_cast<double>(step - o.warmup) / static_cast<double>(o.total - o.warmup);
    return o.floor + (o.peak - o.floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * t));
  };
}

}  // namespace tessera::optim
