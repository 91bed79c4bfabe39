// Pools and interpolation cut along rows, forward and backward, over the same operation on a plain tensor of
// the rank's size: once as they are, and once with the map copied together with its halo first. Channels
// last.
#include "bench/groups.h"
#include "ops/memory_order.h"
#include "ops/ops.h"
#include "ops/window/window_buffer.h"
#include "runtime/copy.h"

namespace tessera::bench {
namespace {

struct Subject {
  const char* name;
  Tensor (*run)(const Tensor&);
};

constexpr Subject kSubjects[] = {
    {"interpolate, bilinear, twice the size",
     [](const Tensor& x) {
       return interpolate(x, {.scale_factor = {2.0}, .mode = InterpolateMode::Bilinear});
     }},
    {"avg_pool2d, 3x3, padding 1",
     [](const Tensor& x) { return avg_pool2d(x, {3}, {.stride = {1}, .padding = {1}}); }},
    {"max_pool2d, 3x3, stride 2, padding 1",
     [](const Tensor& x) { return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}}); }},
};

Tensor channels_last(const Tensor& t) {
  const Array out = empty_in_order(message_order(t.local().dim()), t.local().sizes(), t.dtype(), Device::Cpu);
  copy_strided(out, t.local());
  return t.is_sharded() ? Tensor(out, t.spec()) : Tensor(out);
}

// Forward, and backward from a gradient that lies as the result does.
std::function<void()> passes(const Subject& subject, const Tensor& given) {
  Tensor x = channels_last(given);
  const Tensor dy = channels_last(subject.run(x)) * 0.5;
  x.set_requires_grad();
  return [&subject, x, dy] { grad(Tensors{subject.run(x)}, Tensors{x}, Tensors{dy}); };
}

void measure(const Settings& settings, Report& report, const Subject& subject) {
  const std::int64_t side = settings.quick ? 32 : 512;
  const Dims sizes{1, 32, side, side};
  Generator generator(5);
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  const Tensor cut = randn(sizes, generator, DType::F32, ShardSpec::make(mesh, {Shard(2)}, sizes));
  const Tensor plain = randn(cut.local().sizes(), generator);
  const std::int64_t before = frames_from();
  const auto copying = [before, run = passes(subject, cut)] {
    set_frames_from(INT64_MAX);
    run();
    set_frames_from(before);
  };
  const double seconds = 0.02;  // a repeat
  report.add({.group = "halo_windows",
              .name = subject.name,
              .shape = sizes.str(),
              .timings = interleaved(settings, {repeated(settings, "plain", passes(subject, plain), seconds),
                                                repeated(settings, "cut", passes(subject, cut), seconds),
                                                repeated(settings, "cut, copied", copying, seconds)})});
}

}  // namespace

void halo_windows(const Settings& settings, Report& report) {
  for (const Subject& subject : kSubjects) measure(settings, report, subject);
}

}  // namespace tessera::bench
