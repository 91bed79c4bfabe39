// An activation in the same pass as a linear layer, against the same two one after the other: values,
// gradients and gradients of gradients, cut in every way.
#include "ops/matmul/matmul.h"

#include "autograd/node.h"
#include "runtime/allocator.h"
#include "tests/activation_cases.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::activation_cases;

namespace {

Tensor drawn(Generator& g, const Dims& sizes, DType dtype, const SpecPtr& spec) {
  const Tensor whole = randn(sizes, g, dtype);
  return spec ? redistribute(whole, spec) : whole;
}

struct Cut {
  SpecPtr x, w;  // null: plain
};

void check_all(const Dims& sizes, std::int64_t out, DType dtype, const Cut& cut) {
  Generator g(test_seed());
  const auto draw_inputs = [&] {
    return Tensors{drawn(g, sizes, dtype, cut.x), drawn(g, {out, sizes[sizes.size() - 1]}, dtype, cut.w),
                   randn({out}, g, dtype)};
  };
  Tensors inputs = draw_inputs();
  for (Tensor& t : inputs) t = t.detach().set_requires_grad();
  Dims result = sizes;
  result[sizes.size() - 1] = out;
  Tensors directions = draw_inputs();
  for (const bool bias : {true, false})
    for (const Kind& kind : kKinds) {
      INFO(kind.name << ", " << sizes.str() << " to " << out << " " << name_of(dtype)
                     << (bias ? "" : " without bias") << (cut.x ? " x " + cut.x->str() : "")
                     << (cut.w ? " w " + cut.w->str() : ""));
      const auto f = [&](const Tensors& t, Activation a) {
        return linear(t[0], t[1], bias ? t[2] : Tensor(), a);
      };
      const auto fused = [&](const Tensors& t) { return f(t, kind.fused); };
      const auto apart = [&](const Tensors& t) { return kind.alone(f(t, Activation::None)); };
      const Tensor dy = randn(result, g, dtype);
      check_same(derivatives(inputs, directions, fused, dy), derivatives(inputs, directions, apart, dy),
                 dtype);
    }
}

}  // namespace

TEST_CASE("a linear layer with its activation is the two one after the other", "[ops]") {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const Dims& sizes : {Dims{3, 5, 7}, Dims{40, 9}, Dims{6}}) check_all(sizes, 16, dtype, {});
  // More rows than go through the activation at a time.
  check_all({2500, 3}, 4, DType::F32, {});
}

TEST_CASE("so it is where rows, features or weights are cut", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Dims x{3, 6, 7};
  const Dims w{10, 7};
  const auto cut = [&](const Dims& sizes, int dim) { return ShardSpec::make(mesh, {Shard(dim)}, sizes); };
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const int dim : {0, 1, 2}) check_all(x, w[0], dtype, {cut(x, dim), nullptr});
    for (const int dim : {0, 1}) check_all(x, w[0], dtype, {nullptr, cut(w, dim)});
    check_all(x, w[0], dtype, {cut(x, 1), cut(w, 0)});
    check_all(x, w[0], dtype, {cut(x, 2), cut(w, 1)});
  }
}

TEST_CASE("what is kept of a linear layer and its activation", "[ops]") {
  Generator g(test_seed());
  const Tensor x = randn({512, 8}, g).set_requires_grad();
  const Tensor w = randn({64, 8}, g);
  const std::int64_t result = 512 * 64 * 4;
  const auto live = [&](Activation activation) {
    const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
    const Tensor y = linear(x, w, {}, activation);
    return allocator_stats(Device::Cpu).live_bytes - before;
  };
  CHECK(live(Activation::Relu) < result + result / 8);
  CHECK(live(Activation::Gelu) < 2 * result + result / 8);
  const NoGrad guard;
  CHECK(live(Activation::Gelu) < result + result / 8);
}

TEST_CASE("backward gives up the activation's argument before it makes the gradients", "[ops]") {
  Generator g(test_seed());
  const Tensor x = randn({512, 256}, g).set_requires_grad();
  const Tensor w = randn({64, 256}, g).set_requires_grad();
  const std::int64_t result = 512 * 64 * 4;
  const std::int64_t gradients = (512 + 64) * 256 * 4;
  const Tensor dy = ones({512, 64});
  const auto taken = [&](bool retain) {
    const Tensor y = linear(x, w, {}, Activation::Gelu);
    reset_peak(Device::Cpu);
    const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
    BackwardOptions options;
    options.retain_graph = retain;
    const Tensors both = grad({y}, {x, w}, {dy}, options);
    const std::int64_t most = allocator_stats(Device::Cpu).peak_live_bytes - before;
    if (retain) {  // it is still there
      const Tensors again = grad({y}, {x, w}, {dy});
      CHECK(again[0].to_vector() == both[0].to_vector());
    }
    CHECK_THROWS_WITH(grad({y}, {x, w}, {dy}), Catch::Contains("a second time"));
    return most;
  };
  CHECK(taken(false) < gradients + result / 2);
  CHECK(taken(true) >= gradients + result);
}

TEST_CASE("integers have no activation", "[ops]") {
  const Tensor x(Array::full({2, 3}, 1, DType::I64));
  CHECK(linear(x, x, {}).to_vector() == std::vector<double>(4, 3.0));
  CHECK_THROWS_WITH(linear(x, x, {}, Activation::Relu), Catch::Contains("needs floating tensors"));
}
