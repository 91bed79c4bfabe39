// The price of a call on a sharded tensor over the same call on a plain tensor of the local size, where no
// message is needed.
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 1e-6;

using Op = std::function<Tensor(const Tensor& x)>;

struct Subject {
  const char* name;
  Dims local;  // of x on every rank
  int dim;     // that is cut
  Op op;
};

Tensor filled(const Dims& sizes) {
  Generator generator(7);
  return randn(sizes, generator);
}

std::vector<Subject> subjects() {
  const Tensor w = filled({8, 8});
  const Tensor b = filled({8});
  const Tensor kernel = filled({4, 4, 1, 1});
  const Tensor kernel_bias = filled({4});
  return {
      {"add", {4, 8}, 0, [](const Tensor& x) { return x + x; }},
      {"mul", {4, 8}, 0, [](const Tensor& x) { return x * x; }},
      {"gelu", {4, 8}, 0, [](const Tensor& x) { return gelu(x); }},
      {"linear", {4, 8}, 0, [=](const Tensor& x) { return linear(x, w, b); }},
      {"layer_norm", {4, 8}, 0, [=](const Tensor& x) { return layer_norm(x, {8}, b, b); }},
      {"conv 1x1", {1, 4, 4, 4}, 2, [=](const Tensor& x) { return conv2d(x, kernel, kernel_bias); }},
      {"reshape", {1, 4, 8}, 1, [](const Tensor& x) { return flatten(x, 1); }},
      {"transpose", {4, 8}, 0, [](const Tensor& x) { return transpose(x, 0, 1); }},
      {"sum", {4, 8}, 0, [](const Tensor& x) { return sum(x, {1}); }},
  };
}

void measure(const Settings& settings, Report& report, const Subject& s, bool recording) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  Dims global = s.local;
  global[s.dim] *= mesh.size();
  Tensor plain = filled(s.local);
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
              .limit_extra_s = kLimit});
}

}  // namespace

void overhead(const Settings& settings, Report& report) {
  for (const Subject& s : subjects())
    for (const bool recording : {false, true}) measure(settings, report, s, recording);
}

}  // namespace tessera::bench
