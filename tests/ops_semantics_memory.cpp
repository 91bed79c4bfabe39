// Results lie in memory as their inputs do: a network of convolutions, which leave channels innermost, never
// turns its maps round.
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Map = std::function<Tensor(const Tensor&)>;
struct NamedMap {
  const char* name;
  Map f;
};

// What networks of convolutions do to [2, 6, 8, 10] between these.
std::vector<NamedMap> maps_between_convolutions() {
  static Generator generator(3);
  return {
      {"group_norm", [](const Tensor& x) { return group_norm(x, 3); }},
      {"batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {.training = true}); }},
      {"instance_norm", [](const Tensor& x) { return instance_norm(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5, generator); }},
      {"avg_pool2d", [](const Tensor& x) { return avg_pool2d(x, {2}); }},
      {"max_pool2d", [](const Tensor& x) { return max_pool2d(x, {2}); }},
      {"interpolate", [](const Tensor& x) { return interpolate(x, {.scale_factor = {2.0}}); }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1});
       }},
      {"pad circular",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1}, PadMode::Circular);
       }},
      {"pad reflect",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1}, PadMode::Reflect);
       }},
      {"cat along channels",
       [](const Tensor& x) {
         return cat({x, x}, 1);
       }},
      {"cat along the batch",
       [](const Tensor& x) {
         return cat({x, x}, 0);
       }},
      {"part of the channels", [](const Tensor& x) { return slice(x, 1, 1, 4) * 2.0; }},
      {"part of the map", [](const Tensor& x) { return slice(x, 3, 2, 9, 2) * 2.0; }},
      {"split",
       [](const Tensor& x) {
         return split(x, {2, 4}, 1)[1] * 2.0;
       }},
      {"where", [](const Tensor& x) { return where(gt(x.detach(), zeros({}, x.dtype())), x, x * 0.1); }},
      {"bias",
       [](const Tensor& x) {
         return x + ones({1, 6, 1, 1}, x.dtype());
       }},
      {"mask",
       [](const Tensor& x) {
         return x * ones({8, 10}, x.dtype());
       }},
      {"another dtype and back", [](const Tensor& x) { return to(to(x, DType::F64), x.dtype()); }},
      {"flip", [](const Tensor& x) { return flip(x, {3}); }},
      {"roll", [](const Tensor& x) { return roll(x, {2}, {3}); }},
  };
}

Array channels_last(const Array& a) { return a.permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2}); }
// Possibly a view with gaps.
bool lies_channels_last(const Array& a) {
  return a.dim() == 4 && a.stride(1) == 1 && a.stride(3) >= a.size(1) &&
         a.stride(2) >= a.stride(3) * a.size(3) && a.stride(0) >= a.stride(2) * a.size(2);
}

}  // namespace

TEST_CASE("maps whose channels lie innermost stay so, forward and backward", "[ops]") {
  const SpecPtr spec =
      ShardSpec::make(mesh_over(test_world(), {test_world().size()}), {Shard(2)}, {2, 6, 8, 10});
  Generator draws(test_random(75)());
  for (const NamedMap& map : maps_between_convolutions())
    for (const bool sharded : {false, true}) {
      INFO(map.name << (sharded ? " sharded" : ""));
      const Tensor values = rand({2, 6, 8, 10}, draws, DType::F32);
      Tensor x = sharded ? Tensor(channels_last(values.redistribute(spec).local()), spec)
                         : Tensor(channels_last(values.local()));
      x.set_requires_grad();
      const Tensor y = map.f(x);
      CHECK(lies_channels_last(y.local()));
      const Array ones_like_y = Array::full(y.local().sizes(), 1.0, DType::F32);
      const Tensor dy =
          y.is_sharded() ? Tensor(channels_last(ones_like_y), y.spec()) : Tensor(channels_last(ones_like_y));
      const Tensor dx = grad({y}, {x}, {dy})[0];
      CHECK(lies_channels_last(dx.local()));
    }
}

TEST_CASE("losses of classes that lie innermost are those of row-major memory", "[ops][losses]") {
  Random random = test_random(76);
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  Generator draws(random());
  for (const std::int64_t classes : {3, 16, 61})
    for (int trial = 0; trial < 6; ++trial) {
      const Dims sizes{2, classes, 5, 6};
      const Tensor values = randn(sizes, draws, DType::F64);
      const Tensor target = to(rand({2, 5, 6}, draws) * static_cast<double>(classes), DType::I64);
      const Tensor weight = rand({classes}, draws, DType::F64);
      const SpecPtr spec = trial == 0 ? nullptr : random_spec(random, mesh, sizes);
      INFO(classes << " classes, " << (spec ? spec->str() : "plain"));
      const ClassLossOptions options{.label_smoothing = chance(random, 50) ? 0.1 : 0.0};
      std::vector<std::vector<double>> results;
      for (const bool last : {false, true}) {
        const Array local = spec ? values.redistribute(spec).local() : values.local();
        const Array held = last ? channels_last(local) : local.contiguous();
        const Tensor x = (spec ? Tensor(held, spec) : Tensor(held)).set_requires_grad();
        const Tensor loss = cross_entropy(x, target, weight, options);
        const Tensor dx = grad({loss}, {x})[0];
        if (last && local.size(1) >= 16 && local.numel() > 0) CHECK(lies_channels_last(dx.local()));
        results.push_back(dx.to_vector());
        results.back().push_back(loss.item());
      }
      for (std::size_t i = 0; i < results[0].size(); ++i)
        CHECK(std::abs(results[1][i] - results[0][i]) <= 1e-13 * (1 + std::abs(results[0][i])));
    }
}
