// The price of a call: on a tiny plain tensor, and on a sharded one of the same local size where no message
// is needed; with the tape recording; and of its gradient, the engine included. On a device: what the host
// spends until the last launch has returned.
#include "bench/overhead_subjects.h"

#include "autograd/node.h"
#include "bench/device.h"
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 2e-6;            // of a plain call that is not recorded
constexpr double kLimitRecorded = 2.5e-6;  // of one that is: the node, and what it keeps
constexpr double kLimitExtra = 1e-6;       // of a sharded one over either, on a CPU

using Call = std::function<void()>;

bool sends(const Settings& settings, const Call& call) {
  const std::int64_t before = settings.world.recorder().totals().calls;
  call();
  return settings.world.recorder().totals().calls != before;
}

void check_quiet(const Settings& settings, const std::string& name, const Call& call) {
  TS_CHECK(!sends(settings, call), "overhead", "{} communicates", name);
  const std::int64_t waits = device_waits();
  call();
  TS_CHECK(device_waits() == waits, "overhead", "{} waits for the device", name);
}

// Plain ones and, unless the subject asks other ranks, ones cut over all ranks.
struct Operands {
  DeviceMesh mesh;  // what specs and plans are kept by
  Tensor plain, numbers;
  Tensor sharded, cut_numbers;
};
Operands operands(const Settings& settings, const Subject& s, bool recording) {
  Operands o{DeviceMesh(settings.world, {{"domain", settings.world.size()}}), {}, {}, {}, {}};
  Generator generator(7);
  const auto cut = [&](const Tensor& own, int dim) {
    Dims global = own.sizes();
    global[dim] *= o.mesh.size();
    return Tensor(own.local(), ShardSpec::make(o.mesh, {Shard(dim)}, global));
  };
  o.plain = to(to(rand(s.local, generator) * (is_floating(s.dtype) ? 1.0 : 8.0), s.dtype), settings.device);
  if (!s.numbers.empty()) o.numbers = to(to(rand(s.numbers, generator) * 8.0, DType::I64), settings.device);
  o.plain.set_requires_grad(recording);
  if (s.asks) return o;
  o.sharded = cut(o.plain.detach(), s.dim);
  o.sharded.set_requires_grad(recording);
  if (o.numbers.defined()) o.cut_numbers = cut(o.numbers, 0);
  return o;
}

struct Pair {
  std::string name;
  Call plain, sharded;  // the latter may be empty
  double limit = 0;     // of the plain one, in seconds; 0: none
  double extra = 0;     // of the sharded one over that
};

void measure(const Settings& settings, Report& report, const Dims& local, const Pair& calls) {
  const bool on_device = settings.device != Device::Cpu;  // what the host spends there has one limit
  const auto variant = [&](const char* name, const Call& call) {
    return on_device ? host_part(settings, name, call) : repeated(settings, name, call);
  };
  std::vector<Variant> variants{variant("plain", calls.plain)};
  calls.plain();
  if (calls.sharded) {
    check_quiet(settings, calls.name, calls.sharded);
    variants.push_back(variant("sharded", calls.sharded));
  }
  report.add({.group = "overhead",
              .name = calls.name,
              .shape = local.str() + " on each",
              .timings = interleaved(settings, variants),
              .limit_extra_s = on_device ? 0 : calls.extra,
              .limit_s = calls.limit,
              .limits_all = on_device});
}

void measure_forward(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const Operands o = operands(settings, s, recording);
  double limit = recording ? kLimitRecorded : kLimit;
  if (settings.device != Device::Cpu) limit = kDeviceCallLimit;
  const auto call = [&s](const Tensor& x, const Tensor& numbers) -> Call {
    if (!x.defined()) return {};
    return [&s, x, numbers] { s.call(x, numbers); };
  };
  measure(settings, report, s.local,
          {s.name() + (recording ? ", recorded" : ""), call(o.plain, o.numbers),
           call(o.sharded, o.cut_numbers), limit * s.parts, kLimitExtra * s.parts});
}

// The gradient of x alone, of a result that stays.
Call backward_of(const Subject& s, const Tensor& x, const Tensor& numbers) {
  if (!x.defined()) return {};
  const Tensor y = s.call(x, numbers);
  const Array ones = Array::full(y.local().sizes(), 1, y.dtype(), y.device());
  // Known whole where the result is a sum that is owed: a cotangent that is owed too would have to be summed.
  SpecPtr spec = y.spec();
  if (spec != nullptr && spec->has_partial()) spec = ShardSpec::replicated(spec->mesh(), y.sizes());
  const Tensor dy = spec != nullptr ? Tensor(ones, spec) : Tensor(ones);
  return [=] { grad({y}, {x}, {dy}, {.retain_graph = true}); };
}

void measure_backward(const Settings& settings, Report& report, const Subject& s) {
  const Operands o = operands(settings, s, true);
  if (!s.call(o.plain, o.numbers).requires_grad()) return;  // such as argmax
  const bool limited = settings.device != Device::Cpu;
  Call sharded = backward_of(s, o.sharded, o.cut_numbers);
  // The gradient of a product, say, counts the zeros of the whole tensor.
  if (sharded && sends(settings, sharded)) sharded = {};
  measure(settings, report, s.local,
          {s.name() + ", backward", backward_of(s, o.plain, o.numbers), sharded,
           limited ? kDeviceCallLimit * s.parts : 0, limited ? kLimitExtra * s.parts : 0});
}

}  // namespace

void overhead(const Settings& settings, Report& report) {
  for (const Subject& s : overhead_subjects(settings.device)) {
    if (s.name().find(settings.match) == std::string::npos) continue;
    measure_forward(settings, report, s, false);
    if (!is_floating(s.dtype)) continue;
    measure_forward(settings, report, s, true);
    measure_backward(settings, report, s);
  }
}

}  // namespace tessera::bench
