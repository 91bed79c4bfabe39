// The price of a call: on a tiny plain tensor, and on a sharded one of the same local size where no message
// is needed.
#include "bench/overhead_subjects.h"

#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 2e-6;       // of a plain call that is not recorded
constexpr double kLimitExtra = 1e-6;  // of a sharded one over that

void measure(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  Dims global = s.local;
  global[s.dim] *= mesh.size();
  Generator generator(7);
  Tensor plain = randn(s.local, generator);
  Tensor sharded(plain.local(), ShardSpec::make(mesh, {Shard(s.dim)}, global));
  plain.set_requires_grad(recording);
  sharded.set_requires_grad(recording);
  const std::int64_t before = settings.world.recorder().totals().calls;
  s.op(sharded);
  TS_CHECK(settings.world.recorder().totals().calls == before, "overhead", "{} communicates", s.name);
  const auto timings = interleaved(settings, {repeated(settings, "plain", [&] { s.op(plain); }),
                                              repeated(settings, "sharded", [&] { s.op(sharded); })});
  report.add({.group = "overhead",
              .name = std::string(s.name) + (recording ? ", recorded" : ""),
              .shape = s.local.str() + " on each",
              .timings = timings,
              .limit_extra_s = kLimitExtra,
              .limit_s = recording ? 0 : kLimit});
}

}  // namespace

void overhead(const Settings& settings, Report& report) {
  for (const Subject& s : overhead_subjects())
    for (const bool recording : {false, true}) measure(settings, report, s, recording);
}

}  // namespace tessera::bench
