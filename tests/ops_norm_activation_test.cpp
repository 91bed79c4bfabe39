// An activation in the same pass as a norm, and a residual connection in the same pass as the layer norm
// after it, against the same two one after the other: values, gradients and gradients of gradients, in both
// orders of memory, cut in every way.
#include <catch2/catch.hpp>

#include "runtime/allocator.h"
#include "tests/activation_cases.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::activation_cases;
using namespace tessera::mesh_cases;

namespace {

using Norm = std::function<Tensor(const Tensors& x_weight_bias, NormActivation activation)>;
struct NamedNorm {
  const char* name;
  Norm f;
};
std::vector<NamedNorm> norms(DType dtype) {
  const RunningStatistics running{full({6}, 0.3, dtype), full({6}, 1.7, dtype)};
  return {
      {"group",
       [](const Tensors& t, NormActivation a) {
         return group_norm(t[0], 3, t[1], t[2], {.eps = 1e-3, .activation = a});
       }},
      {"batch",
       [](const Tensors& t, NormActivation a) {
         return batch_norm(t[0], {}, t[1], t[2], {.training = true, .activation = a});
       }},
      {"batch, running",
       [running](const Tensors& t, NormActivation a) {
         return batch_norm(t[0], running, t[1], t[2], {.activation = a});
       }},
      {"instance",
       [](const Tensors& t, NormActivation a) {
         return instance_norm(t[0], {}, t[1], t[2], {.eps = 1e-3, .activation = a});
       }},
      {"instance, running",
       [running](const Tensors& t, NormActivation a) {
         return instance_norm(t[0], running, t[1], t[2], {.use_input_stats = false, .activation = a});
       }},
      {"group without weight and bias",
       [](const Tensors& t, NormActivation a) {
         return group_norm(t[0], 2, {}, {}, {.eps = 1e-3, .activation = a});
       }},
  };
}

Tensor drawn(Generator& g, const Dims& sizes, DType dtype, bool last, const SpecPtr& spec) {
  const Tensor whole = randn(sizes, g, dtype);
  const Array local = spec ? redistribute(whole, spec).local() : whole.local();
  const bool turned = last && sizes.size() == 4;
  const Array own = turned ? local.permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2}) : local;
  return spec ? Tensor(own, spec) : Tensor(own);
}

void check_all(const Dims& sizes, DType dtype, bool last, const SpecPtr& spec) {
  Generator g(test_seed());
  Tensors inputs{drawn(g, sizes, dtype, last, spec), randn({6}, g, dtype), randn({6}, g, dtype)};
  for (Tensor& t : inputs) t.set_requires_grad();
  const Tensors directions{drawn(g, sizes, dtype, last, spec), randn({6}, g, dtype), randn({6}, g, dtype)};
  for (const NamedNorm& norm : norms(dtype))
    for (const Kind& kind : kKinds) {
      INFO(norm.name << " norm, " << kind.name << ", " << sizes.str() << " " << name_of(dtype)
                     << (last ? " channels last" : "") << (spec ? " " + spec->str() : ""));
      const auto fused = [&](const Tensors& t) { return norm.f(t, kind.fused); };
      const auto apart = [&](const Tensors& t) { return kind.alone(norm.f(t, NormActivation::None)); };
      check_same(derivatives(inputs, directions, fused, directions[0]),
                 derivatives(inputs, directions, apart, directions[0]), dtype);
    }
}

}  // namespace

TEST_CASE("a norm with its activation is the two one after the other", "[ops][norms]") {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const bool last : {false, true})
      for (const Dims& sizes : {Dims{3, 6, 7, 9}, Dims{2, 6, 2, 3}}) check_all(sizes, dtype, last, nullptr);
}

TEST_CASE("so it is where the data are cut, inside groups too", "[ops][norms]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  for (const DType dtype : {DType::F32, DType::F64})
    for (const bool last : {false, true})
      for (const int dim : {0, 1, 2})
        check_all({3, 6, 7, 5}, dtype, last, ShardSpec::make(mesh, {Shard(dim)}, {3, 6, 7, 5}));
}

TEST_CASE("a residual connection with its layer norm is the two one after the other", "[ops][norms]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Dims sizes{4, 5, 6};
  for (const DType dtype : {DType::F32, DType::F64})
    for (const SpecPtr& spec :
         {SpecPtr(), ShardSpec::make(mesh, {Shard(0)}, sizes), ShardSpec::make(mesh, {Shard(1)}, sizes),
          ShardSpec::make(mesh, {Shard(2)}, sizes)}) {
      INFO(name_of(dtype) << (spec ? " " + spec->str() : ""));
      Generator g(test_seed());
      const auto alike = [&] { return drawn(g, sizes, dtype, false, spec); };
      Tensors inputs{alike(), randn({6}, g, dtype), randn({6}, g, dtype), alike()};
      for (Tensor& t : inputs) t.set_requires_grad();
      const Tensors directions{alike(), randn({6}, g, dtype), randn({6}, g, dtype), alike()};
      const auto fused = [](const Tensors& t) {
        const auto [sum, norm] = add_layer_norm(t[0], t[3], {6}, {t[1], t[2], 1e-3});
        return sum * 0.7 + norm;
      };
      const auto apart = [](const Tensors& t) {
        const Tensor sum = t[0] + t[3];
        return sum * 0.7 + layer_norm(sum, {6}, t[1], t[2], 1e-3);
      };
      const Tensor dy = alike();
      check_same(derivatives(inputs, directions, fused, dy), derivatives(inputs, directions, apart, dy),
                 dtype);
    }
}

TEST_CASE("a bfloat16 norm rounds once, after its activation", "[ops][norms]") {
  Generator g(test_seed());
  const Tensor x = randn({2, 6, 5, 7}, g, DType::BF16);
  const Tensor wide = to(x, DType::F64);
  for (const Kind& kind : kKinds) {
    const std::vector<double> got =
        group_norm(x, 3, {}, {}, {.eps = 1e-3, .activation = kind.fused}).to_vector();
    const std::vector<double> want = kind.alone(group_norm(wide, 3, {}, {}, 1e-3)).to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      CHECK(std::abs(got[i] - want[i]) <= std::ldexp(std::abs(want[i]), -8) + 1e-5);
  }
}

TEST_CASE("backward keeps neither the normalised values nor the activation's argument", "[ops][norms]") {
  Generator g(test_seed());
  const Dims sizes{1, 8, 64, 64};
  const std::int64_t map = numel_of(sizes) * 4;
  Tensor x = randn(sizes, g, DType::F32).set_requires_grad();
  const auto kept = [&](const std::function<Tensor()>& f) {
    const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
    const Tensor y = f();
    return allocator_stats(Device::Cpu).live_bytes - before;
  };
  CHECK(kept([&] { return gelu(group_norm(x, 4)); }) >= 2 * map);
  CHECK(kept([&] { return group_norm(x, 4, {}, {}, {.activation = NormActivation::Gelu}); }) < map + map / 8);
}
