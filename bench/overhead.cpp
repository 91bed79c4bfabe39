// The price of a call: on a tiny plain tensor, and on a sharded one of the same local size where no message
// is needed. On a device: what the host spends until the last launch has returned, backward too.
#include "bench/overhead_subjects.h"

#include "autograd/node.h"
#include "bench/device.h"
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 2e-6;       // of a plain call that is not recorded
constexpr double kLimitExtra = 1e-6;  // of a sharded one over that

using Call = std::function<void()>;

void check_quiet(const Settings& settings, const std::string& name, const Call& call) {
  const std::int64_t before = settings.world.recorder().totals().calls;
  call();
  const std::int64_t waits = device_waits();
  call();
  TS_CHECK(settings.world.recorder().totals().calls == before, "overhead", "{} communicates", name);
  TS_CHECK(device_waits() == waits, "overhead", "{} waits for the device", name);
}

struct Twice {
  DeviceMesh mesh;  // what specs and plans are kept by
  Tensor plain, sharded;
};
Twice operands(const Settings& settings, const Subject& s, bool recording) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  Dims global = s.local;
  global[s.dim] *= mesh.size();
  Generator generator(7);
  Tensor plain = to(randn(s.local, generator), settings.device);
  Tensor sharded(plain.local(), ShardSpec::make(mesh, {Shard(s.dim)}, global));
  plain.set_requires_grad(recording);
  sharded.set_requires_grad(recording);
  return {mesh, plain, sharded};
}

struct Pair {
  std::string name;
  Call plain, sharded;
  double limit = 0;  // of the plain one, in seconds; 0: none
};

void measure(const Settings& settings, Report& report, const Dims& local, const Pair& calls) {
  check_quiet(settings, calls.name, calls.sharded);
  calls.plain();
  const auto variant = [&](const char* name, const Call& call) {
    return settings.device != Device::Cpu ? host_part(settings, name, call) : repeated(settings, name, call);
  };
  const auto timings =
      interleaved(settings, {variant("plain", calls.plain), variant("sharded", calls.sharded)});
  report.add({.group = "overhead",
              .name = calls.name,
              .shape = local.str() + " on each",
              .timings = timings,
              .limit_extra_s = kLimitExtra,
              .limit_s = calls.limit});
}

void measure_forward(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const Twice x = operands(settings, s, recording);
  const double limit = settings.device != Device::Cpu ? kDeviceCallLimit : recording ? 0 : kLimit;
  measure(settings, report, s.local,
          {std::string(s.name) + (recording ? ", recorded" : ""), [&] { s.op(x.plain); },
           [&] { s.op(x.sharded); }, limit});
}

// The gradient of x alone, of a result that stays.
Call backward_of(const Subject& s, const Tensor& x) {
  const Tensor y = s.op(x);
  const Array ones = Array::full(y.local().sizes(), 1, y.dtype(), y.device());
  const Tensor dy = y.is_sharded() ? Tensor(ones, y.spec()) : Tensor(ones);
  return [=] { grad({y}, {x}, {dy}, {.retain_graph = true}); };
}

void measure_backward(const Settings& settings, Report& report, const Subject& s) {
  const Twice x = operands(settings, s, true);
  if (!s.op(x.plain).requires_grad()) return;  // such as argmax
  measure(settings, report, s.local,
          {std::string(s.name) + ", backward", backward_of(s, x.plain), backward_of(s, x.sharded),
           kDeviceCallLimit});
}

}  // namespace

void overhead(const Settings& settings, Report& report) {
  for (const Subject& s : overhead_subjects(settings.device)) {
    for (const bool recording : {false, true}) measure_forward(settings, report, s, recording);
    if (settings.device != Device::Cpu) measure_backward(settings, report, s);
  }
}

}  // namespace tessera::bench
