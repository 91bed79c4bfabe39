// Learning-rate schedules: plain functions of the step, counted from 0.
//
//   const auto schedule = optim::warmup_cosine({.peak = 1e-3, .warmup = 50, .total = 2000});
//   optimizer.set_lr(schedule(step));
#pragma once
#include <cstdint>
#include <functional>

namespace tessera::optim {

using Schedule = std::function<double(std::int64_t step)>;

Schedule constant(double lr);
// From `from` at step 0 to `to` at step `steps`, then `to`.
Schedule linear(double from, double to, std::int64_t steps);
// lr·gamma^(step / every), rounded down.
Schedule step_decay(double lr, std::int64_t every, double gamma = 0.1);

struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps; step s < warmup has peak·(s + 1) / warmup
  std::int64_t total = 0;   // step `total` and later have `floor`
  double floor = 0.0;
};
// Then half a cosine: floor + (peak − floor)·(1 + cos(π·(s − warmup) / (total − warmup))) / 2.
Schedule warmup_cosine(const WarmupCosine& options);

}  // namespace tessera::optim
