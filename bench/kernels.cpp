// Local kernels, forward and backward: rates, and their share of what the core can do. No ratios.
#include <fmt/format.h>

#include "autograd/node.h"
#include "bench/groups.h"
#include "bench/kernel_cases.h"
#include "bench/peak.h"
#include "ops/ops.h"
#include "runtime/threads.h"

namespace tessera::bench {
namespace {

// Of a repeat: short, so that on a shared machine some go undisturbed.
constexpr double kSeconds = 0.005;

void report_pass(const KernelCase& k, const char* pass, double effort, Timing timing, Report& report) {
  static const double kPeak = fma_peak() * thread_count();
  Case c{.group = "kernels", .name = fmt::format("{}, {}", k.name, pass), .shape = k.shape};
  timing.paired = 1;  // alone in its case
  c.timings = {std::move(timing)};
  c.work = {effort, k.memory_bound ? "GB/s" : "GF/s"};
  c.recipe = k.recipe;
  c.family = k.family;
  if (!k.memory_bound) c.work.peak = kPeak;
  report.add(c);
}

}  // namespace

void kernels(const Settings& settings, Report& report) {
  for (const KernelCase& k : kernel_cases(settings.quick)) {
    if (fmt::format("{} {}", k.name, k.shape).find(settings.match) == std::string::npos) continue;
    std::vector<Variant> variants;
    variants.push_back(repeated(
        settings, "forward",
        [&k] {
          const NoGrad guard;
          k.run();
        },
        kSeconds));
    if (k.effort.backward > 0) {
      const Tensors y = k.run();
      Tensors g;  // in y's memory order, as the next op's backward would give it
      for (const Tensor& t : y) g.push_back(t.detach() * 0.5);
      variants.push_back(repeated(
          settings, "backward", [&k, y, g] { grad(y, k.inputs, g, {.retain_graph = true}); }, kSeconds));
    }
    const std::vector<Timing> timings = interleaved(settings, variants);
    report_pass(k, "forward", k.effort.forward, timings[0], report);
    if (timings.size() > 1) report_pass(k, "backward", k.effort.backward, timings[1], report);
  }
}

}  // namespace tessera::bench
