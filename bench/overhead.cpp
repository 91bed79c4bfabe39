// The price of a call: on a tiny plain tensor, and on a sharded one of the same local size where no message
// is needed. On a device: what the host spends until the last launch has returned.
#include "bench/overhead_subjects.h"

#include "bench/device.h"
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 2e-6;       // of a plain call that is not recorded
constexpr double kLimitExtra = 1e-6;  // of a sharded one over that
constexpr double kDeviceLimit = 5e-6;

// The subject's call on plain tensors and, in the same run, on tensors cut over all ranks.
void measure(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  const bool on_device = settings.device != Device::Cpu;
  Generator generator(7);
  const auto cut = [&](const Tensor& own, int dim) {
    Dims global = own.sizes();
    global[dim] *= mesh.size();
    return Tensor(own.local(), ShardSpec::make(mesh, {Shard(dim)}, global));
  };
  const auto variant = [&](const char* name, const Tensor& x, const Tensor& numbers) {
    auto call = [&s, x, numbers] { s.call(x, numbers); };
    return on_device ? host_part(settings, name, call) : repeated(settings, name, call);
  };
  Tensor plain = to(rand(s.local, generator), settings.device);
  const Tensor numbers =
      s.numbers.empty() ? Tensor() : to(to(rand(s.numbers, generator) * 8.0, DType::I64), settings.device);
  plain.set_requires_grad(recording);
  std::vector<Variant> variants{variant("plain", plain, numbers)};
  s.call(plain, numbers);
  if (!s.asks) {
    Tensor sharded = cut(plain.detach(), s.dim);
    sharded.set_requires_grad(recording);
    const Tensor cut_numbers = numbers.defined() ? cut(numbers, 0) : numbers;
    s.call(sharded, cut_numbers);
    const std::int64_t before = settings.world.recorder().totals().calls;
    const std::int64_t waits = device_waits();
    s.call(sharded, cut_numbers);
    TS_CHECK(settings.world.recorder().totals().calls == before, "overhead", "{} communicates", s.name());
    TS_CHECK(device_waits() == waits, "overhead", "{} waits for the device", s.name());
    variants.push_back(variant("sharded", sharded, cut_numbers));
  }
  report.add({.group = "overhead",
              .name = s.name() + (recording ? ", recorded" : ""),
              .shape = s.local.str() + " on each",
              .timings = interleaved(settings, variants),
              .limit_extra_s = kLimitExtra,
              .limit_s = on_device   ? kDeviceLimit
                         : recording ? 0
                                     : kLimit});
}

}  // namespace

void overhead(const Settings& settings, Report& report) {
  for (const Subject& s : overhead_subjects(settings.device))
    for (const bool recording : {false, true}) measure(settings, report, s, recording);
}

}  // namespace tessera::bench
