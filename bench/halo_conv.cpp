// Convolutions cut along spatial dims, forward and backward, beside the same local convolutions alone: the
// kernels on a buffer in which the halo lies already, so that the products are the same ones. All ranks are
// busy in both. A plain tensor of the local size with zeros around stands between them: it makes fewer
// products (of the volume below 1 % fewer). Memory is channels-last throughout.
#include <fmt/format.h>

#include "bench/groups.h"
#include "ops/kernels.h"
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

// How a map [N, C, spatial…] is cut and padded.
struct Cut {
  const char* name;
  Dims sizes;
  Placements placements{Shard(2)};  // one per axis of the mesh
  Dims periodic{};                  // spatial dims
  double limit = kLimit;
};

DeviceMesh mesh_for(const Settings& settings, const Cut& cut) {
  const int ranks = settings.world.size();
  if (cut.placements.size() == 1) return DeviceMesh(settings.world, {{"domain", ranks}});
  return DeviceMesh(settings.world, {{"rows", 2}, {"columns", ranks / 2}});
}

// `mesh` undefined: a plain tensor of these sizes.
Problem make_problem(const Dims& x_sizes, const Cut& cut, const DeviceMesh& mesh) {
  const std::int64_t out_channels = x_sizes[1];
  Generator generator(5);
  Dims w_sizes = x_sizes;
  Dims y_sizes = x_sizes;
  w_sizes[0] = y_sizes[1] = out_channels;
  for (int d = 2; d < w_sizes.size(); ++d) w_sizes[d] = 3;
  auto make = [&](const Dims& sizes) {
    const SpecPtr spec = mesh.defined() ? ShardSpec::make(mesh, cut.placements, sizes) : nullptr;
    const Array local = channels_last(randn(sizes, generator, DType::F32, spec).local());
    return spec ? Tensor(local, spec) : Tensor(local);
  };
  Problem p;
  p.options.padding = {1};
  if (mesh.defined()) p.options.periodic = cut.periodic;
  p.x = make(x_sizes);
  p.dy = make(y_sizes);
  p.w = randn(w_sizes, generator);
  p.b = randn({out_channels}, generator);
  for (Tensor* t : {&p.x, &p.w, &p.b}) t->set_requires_grad();
  return p;
}

// What a rank must work out once its halo has arrived.
class Bare {
 public:
  Bare(const Problem& cut_problem, const Cut& cut) : w_(cut_problem.w.local()), b_(cut_problem.b.local()) {
    const ShardSpec& spec = *cut_problem.x.spec();
    Dims sizes = cut_problem.x.local().sizes();
    const int spatial = sizes.size() - 2;
    geometry_.stride = geometry_.dilation = geometry_.padding_lo = geometry_.padding_hi =
        Dims::filled(spatial, 1);
    for (int d = 0; d < spatial; ++d) {
      const Interval own = spec.intervals(d + 2)[0];
      const bool periodic = std::find(cut.periodic.begin(), cut.periodic.end(), d) != cut.periodic.end();
      const bool lo = periodic || own.lo > 0;
      const bool hi = periodic || own.hi < cut.sizes[d + 2];
      geometry_.padding_lo[d] -= lo ? 1 : 0;
      geometry_.padding_hi[d] -= hi ? 1 : 0;
      sizes[d + 2] += (lo ? 1 : 0) + (hi ? 1 : 0);
    }
    Generator generator(6);
    x_ = channels_last(randn(sizes, generator).local());
    dy_ = cut_problem.dy.local();
  }

  void run() const {
    const auto like = [](const Array& a) {
      return Array::empty_strided(a.sizes(), cpu::channels_last_strides(a.sizes()), a.dtype(), a.device());
    };
    const Array y = like(dy_);  // lives on through the backward pass, as it does where others read it
    kernels::conv_forward(Device::Cpu, {y, x_, w_, b_, geometry_});
    kernels::conv_backward_weight(Device::Cpu,
                                  {Array::empty(w_.sizes(), w_.dtype(), w_.device()), dy_, x_, geometry_});
    kernels::conv_backward_data(Device::Cpu, {like(x_), dy_, w_, geometry_});
    Dims others{0};
    for (int d = 2; d < dy_.dim(); ++d) others.push_back(d);
    sum(Tensor(dy_), others);
  }

 private:
  Array x_, dy_, w_, b_;
  cpu::ConvGeometry geometry_;
};

void measure(const Settings& settings, Report& report, const Cut& cut) {
  const Problem whole = make_problem(cut.sizes, cut, mesh_for(settings, cut));
  const Problem local = make_problem(whole.x.local().sizes(), cut, DeviceMesh());
  const Bare bare(whole, cut);
  const double seconds = 0.05;  // a repeat
  const auto timings =
      interleaved(settings, {repeated(
                                 settings, "bare", [&] { bare.run(); }, seconds),
                             repeated(
                                 settings, "plain, zeros around", [&] { local.run(); }, seconds),
                             repeated(
                                 settings, "cut", [&] { whole.run(); }, seconds)});
  const double kernel = cut.sizes.size() == 4 ? 9.0 : 27.0;
  report.add({.group = "halo_conv",
              .name = fmt::format("{}, forward + backward", cut.name),
              .shape = cut.sizes.str(),
              .timings = timings,
              .work = {6.0 * kernel * static_cast<double>(local.x.numel() * cut.sizes[1]), "GF/s"},
              .limit = cut.limit,
              .limits_paired = true});
}

}  // namespace

void halo_conv(const Settings& settings, Report& report) {
  const std::int64_t side = settings.quick ? 64 : 256;
  const std::int64_t edge = settings.quick ? 32 : 64;
  const Dims map{1, 64, side, side};
  const Dims small{1, 32, side / 4, side / 4};
  measure(settings, report, {"3x3", map});
  measure(settings, report, {"3x3x3", {1, 16, edge, edge, edge}});
  measure(settings, report, {"3x3, columns", map, {Shard(3)}});
  measure(settings, report, {"3x3, periodic columns", map, {Shard(2)}, {1}});
  measure(settings, report, {"3x3, small", small, {Shard(2)}, {}, 0});
  measure(settings, report, {"3x3, small, periodic columns", small, {Shard(2)}, {1}, 0});
  if (settings.world.size() % 2 != 0 || settings.world.size() < 4) return;
  measure(settings, report, {"3x3, rows and columns", map, {Shard(2), Shard(3)}});
  measure(settings, report, {"3x3, rows and periodic columns", map, {Shard(2), Shard(3)}, {1}});
}

}  // namespace tessera::bench
