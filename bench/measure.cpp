#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<Timing> interleaved(const Settings& settings, const std::vector<Variant>& variants) {
  const auto count = static_cast<std::int64_t>(variants.size());
  const std::int64_t rounds = settings.rounds();
  for (const Variant& v : variants) v.run();
  const Array times = Array::zeros({count, rounds}, DType::F64);
  auto* t = times.data<double>();
  for (std::int64_t r = 0; r < rounds; ++r)
    for (std::int64_t v = 0; v < count; ++v) {
      settings.world.barrier();
      const Variant& variant = variants[static_cast<std::size_t>(v)];
      t[v * rounds + r] = seconds_of(variant.run) / variant.calls;
    }
  settings.world.all_reduce(times, ReduceOp::Max).wait();
  std::vector<Timing> result;
  for (std::int64_t v = 0; v < count; ++v) {
    std::sort(t + v * rounds, t + (v + 1) * rounds);
    result.push_back({variants[static_cast<std::size_t>(v)].name, t[v * rounds], t[v * rounds + rounds / 2]});
  }
  return result;
}

Variant repeated(const Settings& settings, std::string name, std::function<void()> f, double seconds) {
  constexpr int kTrial = 4;
  constexpr double kMostCalls = 1e5;
  f();
  const double one = seconds_of([&] {
                       for (int i = 0; i < kTrial; ++i) f();
                     }) /
                     kTrial;
  const Array slowest = Array::full({1}, one, DType::F64);
  settings.world.all_reduce(slowest, ReduceOp::Max).wait();
  const double wanted = (settings.quick ? seconds / 10 : seconds) / std::max(slowest.at(0), 1e-9);
  const int calls = static_cast<int>(std::clamp(std::ceil(wanted), 1.0, kMostCalls));
  auto many = [f = std::move(f), calls] {
    for (int i = 0; i < calls; ++i) f();
  };
  return {std::move(name), std::move(many), calls};
}

}  // namespace tessera::bench
