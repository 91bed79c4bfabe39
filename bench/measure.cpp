#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Spent spent_in(const std::function<void()>& f) {
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  f();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  return {wall, cpu_seconds() - cpu};
}

std::vector<Timing> interleaved(const Settings& settings, const std::vector<Variant>& variants) {
  const auto count = static_cast<std::int64_t>(variants.size());
  const std::int64_t rounds = settings.rounds();
  for (const Variant& v : variants) v.run();
  const Array times = Array::zeros({2, count, rounds}, DType::F64);
  auto* wall = times.data<double>();
  auto* cpu = wall + count * rounds;
  for (std::int64_t r = 0; r < rounds; ++r)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t v = (r + i) % count;
      settings.world.barrier();
      const Variant& variant = variants[static_cast<std::size_t>(v)];
      const Spent spent = variant.stopwatch(variant.run);
      wall[v * rounds + r] = spent.wall / variant.calls;
      cpu[v * rounds + r] = spent.cpu / variant.calls;
    }
  settings.world.all_reduce(times, ReduceOp::Max).wait();
  std::vector<Timing> result;
  for (std::int64_t v = 0; v < count; ++v) {
    const std::vector<double> w(wall + v * rounds, wall + (v + 1) * rounds);
    std::vector<double> ratios(w.size());
    std::transform(w.begin(), w.end(), wall, ratios.begin(), std::divides<>());
    result.push_back({variants[static_cast<std::size_t>(v)].name, *std::min_element(w.begin(), w.end()),
                      median(w), median(ratios),
                      *std::min_element(cpu + v * rounds, cpu + (v + 1) * rounds)});
  }
  return result;
}

Variant repeated(const Settings& settings, std::string name, std::function<void()> f, double seconds) {
  constexpr int kTrial = 4;
  constexpr double kMostCalls = 1e5;
  f();
  const Spent trial = spent_in([&] {
    for (int i = 0; i < kTrial; ++i) f();
  });
  const double one = trial.wall / kTrial;
  const Array slowest = Array::full({1}, one, DType::F64);
  settings.world.all_reduce(slowest, ReduceOp::Max).wait();
  const double wanted = (settings.quick ? seconds / 10 : seconds) / std::max(slowest.at(0), 1e-9);
  const int calls = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, kMostCalls));
  auto many = [f = std::move(f), calls] {
    for (int i = 0; i < calls; ++i) f();
  };
  return {std::move(name), std::move(many), calls};
}

Variant host_part(const Settings& settings, std::string name, std::function<void()> f) {
  const int calls = settings.quick ? 4 : 64;
  auto many = [f = std::move(f), calls] {
    for (int i = 0; i < calls; ++i) f();
  };
  auto stopwatch = [device = settings.device](const std::function<void()>& run) {
    synchronize(device);
    return spent_in(run);
  };
  return {std::move(name), std::move(many), calls, std::move(stopwatch)};
}

}  // namespace tessera::bench
