// Convolutions cut along the first spatial dim, forward and backward, beside the same convolutions on a plain
// tensor of the local size: all ranks are busy in both. Memory is channels-last throughout.
#include "bench/groups.h"
#include "ops/cpu/conv.h"
#include "ops/ops.h"
#include "runtime/copy.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 1.02;

Array channels_last(const Array& a) {
  Array out = Array::empty_strided(a.sizes(), cpu::channels_last_strides(a.sizes()), a.dtype(), a.device());
  copy_strided(out, a);
  return out;
}

// x, w, b and the gradient that comes back.
struct Problem {
  Tensor x, w, b, dy;
  ConvOptions options;

  void run() const {
    for (const Tensor* t : {&x, &w, &b}) t->zero_grad();
    conv(x, w, b, options).backward(dy);
  }
};

Problem make_problem(const Dims& x_sizes, std::int64_t out_channels, const DeviceMesh& mesh) {
  Generator generator(5);
  Dims w_sizes = x_sizes;
  Dims y_sizes = x_sizes;
  w_sizes[0] = y_sizes[1] = out_channels;
  for (int d = 2; d < w_sizes.size(); ++d) w_sizes[d] = 3;
  auto make = [&](const Dims& sizes) {
    const SpecPtr spec = mesh.defined() ? ShardSpec::make(mesh, {Shard(2)}, sizes) : nullptr;
    const Array local = channels_last(randn(sizes, generator, DType::F32, spec).local());
    return spec ? Tensor(local, spec) : Tensor(local);
  };
  Problem p;
  p.options.padding = {1};
  p.x = make(x_sizes);
  p.dy = make(y_sizes);
  p.w = randn(w_sizes, generator);
  p.b = randn({out_channels}, generator);
  for (Tensor* t : {&p.x, &p.w, &p.b}) t->set_requires_grad();
  return p;
}

void measure(const Settings& settings, Report& report, const char* name, const Dims& sizes) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  const Problem cut = make_problem(sizes, sizes[1], mesh);
  const Problem local = make_problem(cut.x.local().sizes(), sizes[1], DeviceMesh());
  const auto timings = interleaved(settings, {repeated(
                                                  settings, "local", [&] { local.run(); }, 0.05),
                                              repeated(
                                                  settings, "cut", [&] { cut.run(); }, 0.05)});
  const double kernel = sizes.size() == 4 ? 9.0 : 27.0;
  report.add({.group = "halo_conv",
              .name = name,
              .shape = sizes.str(),
              .timings = timings,
              .work = {6.0 * kernel * static_cast<double>(local.x.numel() * sizes[1]), "GF/s"},
              .limit = kLimit});
}

}  // namespace

void halo_conv(const Settings& settings, Report& report) {
  const std::int64_t side = settings.quick ? 64 : 256;
  const std::int64_t edge = settings.quick ? 32 : 64;
  measure(settings, report, "3x3, forward + backward", {1, 64, side, side});
  measure(settings, report, "3x3x3, forward + backward", {1, 16, edge, edge, edge});
}

}  // namespace tessera::bench
