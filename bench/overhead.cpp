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

void measure(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  Dims global = s.local;
  global[s.dim] *= mesh.size();
  Generator generator(7);
  Tensor plain = to(randn(s.local, generator), settings.device);
  Tensor sharded(plain.local(), ShardSpec::make(mesh, {Shard(s.dim)}, global));
  plain.set_requires_grad(recording);
  sharded.set_requires_grad(recording);
  const std::int64_t before = settings.world.recorder().totals().calls;
  s.op(sharded);
  s.op(plain);
  const std::int64_t waits = device_waits();
  s.op(sharded);
  TS_CHECK(settings.world.recorder().totals().calls == before, "overhead", "{} communicates", s.name);
  TS_CHECK(device_waits() == waits, "overhead", "{} waits for the device", s.name);
  const bool on_device = settings.device != Device::Cpu;
  const auto variant = [&](const char* name, const Tensor& x) {
    auto call = [&s, &x] { s.op(x); };
    return on_device ? host_part(settings, name, call) : repeated(settings, name, call);
  };
  const auto timings = interleaved(settings, {variant("plain", plain), variant("sharded", sharded)});
  report.add({.group = "overhead",
              .name = std::string(s.name) + (recording ? ", recorded" : ""),
              .shape = s.local.str() + " on each",
              .timings = timings,
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
