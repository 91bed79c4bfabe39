// Corners in which operations follow PyTorch: NaN, dtypes; and windows that read nothing but padding.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

TEST_CASE("beside a NaN both terms of maximum and minimum get the whole gradient", "[ops]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (auto* f : {&maximum, &minimum}) {
    Tensor a = tensor(std::vector<double>{nan, 1, 2, 2}, {4}, DType::F64);
    Tensor b = tensor(std::vector<double>{1, nan, 2, 3}, {4}, DType::F64);
    a.set_requires_grad();
    b.set_requires_grad();
    sum(f(a, b)).backward();
    const double larger = f == &maximum ? 0.0 : 1.0;
    CHECK(a.grad().to_vector() == std::vector<double>{1, 1, 0.5, larger});
    CHECK(b.grad().to_vector() == std::vector<double>{1, 1, 0.5, 1 - larger});
  }
}

TEST_CASE("a 0-dim tensor decides the dtype only by a higher category", "[ops]") {
  const auto of = [](DType t, const Dims& sizes) { return Tensor(Array::full(sizes, 1, t)); };
  CHECK((of(DType::Bool, {2}) + of(DType::I64, {})).dtype() == DType::I64);
  CHECK((of(DType::I32, {2}) + of(DType::I64, {})).dtype() == DType::I32);
  CHECK((of(DType::I64, {2}) + of(DType::F32, {})).dtype() == DType::F32);
  CHECK((of(DType::BF16, {}) + of(DType::Bool, {2})).dtype() == DType::BF16);
}

TEST_CASE("an integer tensor times a fraction is floating", "[ops]") {
  const Tensor three(Array::full({2}, 3, DType::I64));
  CHECK((three * 2.0).dtype() == DType::I64);
  CHECK((three / 2.0).to_vector() == std::vector<double>{1.5, 1.5});
  CHECK((three * 0.5).dtype() == DType::F32);
  CHECK((Tensor(Array::full({1}, 1, DType::Bool)) * 2.0).dtype() == DType::I64);
}

TEST_CASE("bools that are owed are or-ed before they are counted", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Tensor x(Array::full({2}, 1, DType::Bool), ShardSpec::make(mesh, {Partial()}, {2}));
  CHECK(sum(x).item() == 2);
}

TEST_CASE("convolution where the first rank's windows read nothing but padding", "[ops]") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  Generator random(test_seed());
  const Tensor x = randn({1, 1, 9}, random, DType::F64);
  const Tensor w = randn({1, 1, 2}, random, DType::F64);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()), 1);
  lengths.back() = 10 - world.size();
  Tensor part = x.redistribute(ShardSpec::from_lengths(mesh, {Shard(2)}, x.sizes(), {lengths})).detach();
  Tensor whole = x.detach();
  part.set_requires_grad();
  whole.set_requires_grad();
  const ConvOptions options{.stride = {3}, .padding = {3}};
  const Tensor split = conv1d(part, w, Tensor(), options);
  const Tensor plain = conv1d(whole, w, Tensor(), options);
  sum(square(split)).backward();
  sum(square(plain)).backward();
  const std::vector<double> want = plain.to_vector();
  const std::vector<double> got = split.to_vector();
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-12));
  const std::vector<double> want_gradient = whole.grad().to_vector();
  const std::vector<double> gradient = part.grad().to_vector();
  for (std::size_t i = 0; i < want_gradient.size(); ++i)
    CHECK(gradient[i] == Approx(want_gradient[i]).margin(1e-12));
}

TEST_CASE("layer_norm over a cut dim forms its means in float32 for bfloat16 too", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Generator random(test_seed());
  const auto rounded = [&](const Dims& sizes, double scale, double shift) {
    return to(to(randn(sizes, random, DType::F64) * scale + shift, DType::BF16), DType::F64);
  };
  // Gradients far from zero: what is left after the means is of the size of their bfloat16 rounding.
  const std::array<Tensor, 4> values{rounded({5, 24}, 1, 3), rounded({24}, 0.1, 1), rounded({24}, 1, 0),
                                     rounded({5, 24}, 1, 100)};
  const auto gradients = [&](DType dtype, const SpecPtr& spec) {
    Tensor x = to(values[0], dtype).detach();
    if (spec) x = x.redistribute(spec).detach();
    Tensor w = to(values[1], dtype).detach();
    Tensor b = to(values[2], dtype).detach();
    for (Tensor* t : {&x, &w, &b}) t->set_requires_grad();
    layer_norm(x, {24}, w, b).backward(to(values[3], dtype));
    return std::array<std::vector<double>, 3>{x.grad().to_vector(), w.grad().to_vector(),
                                              b.grad().to_vector()};
  };
  const auto want = gradients(DType::F64, nullptr);
  const auto got = gradients(DType::BF16, ShardSpec::make(mesh, {Shard(1)}, {5, 24}));
  for (std::size_t k = 0; k < want.size(); ++k)
    for (std::size_t i = 0; i < want[k].size(); ++i) {
      INFO("gradient of input " << k << ", element " << i);
      CHECK(got[k][i] == Approx(want[k][i]).epsilon(1.0 / 256).margin(1e-3));
    }
}

TEST_CASE("layer_norm of float32 data far from zero keeps its digits where rows are cut", "[ops]") {
  auto random = test_random(94);
  const Dims sizes{4, 5, 24};
  Generator g(random());
  const Tensor far = to(randn(sizes, g, DType::F64) + 1e4, DType::F32);
  const Tensor cotangent = randn(sizes, g);
  for (const Dims& shape : {Dims{24}, Dims{5, 24}}) {
    const Tensor weight = rand(shape, g) + 0.5;
    const auto run = [&](const Tensor& x_given, DType dtype) {
      Tensor x = x_given.detach().set_requires_grad();
      Tensor w = to(weight, dtype).detach().set_requires_grad();
      Tensor b = zeros(shape, dtype).set_requires_grad();
      const Tensor y = layer_norm(x, shape, w, b);
      y.backward(to(cotangent, dtype));
      return std::array{y.to_vector(), x.grad().to_vector(), w.grad().to_vector(), b.grad().to_vector()};
    };
    const auto want = run(to(far, DType::F64), DType::F64);
    for (const DeviceMesh& mesh : all_meshes())
      for (int trial = 0; trial < 6; ++trial) {
        const SpecPtr spec = random_spec(random, mesh, sizes, {.replicate_percent = 10});
        if (!spec->cut(2)) continue;
        INFO(spec->str());
        const auto got = run(redistribute(far, spec), DType::F32);
        const std::array<double, 4> allowed{4e-6, 6e-6, 3e-5, 1e-5};
        for (std::size_t k = 0; k < want.size(); ++k)
          for (std::size_t i = 0; i < want[k].size(); ++i) {
            INFO("result " << k << ", element " << i);
            CHECK(std::abs(got[k][i] - want[k][i]) <= allowed[k]);
          }
      }
  }
}

TEST_CASE("layer_norm over cut rows sends one message forward and one backward", "[ops]") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Recorder& recorder = mesh.comm().recorder();
  for (const int dim : {0, 1, 2}) {
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(dim)}, {6, 7, 8});
    Tensor x(Array::full(spec->local_sizes(), 1.0, DType::F32), spec);
    x.set_requires_grad();
    Tensor w = ones({8}).set_requires_grad();
    Tensor b = zeros({8}).set_requires_grad();
    recorder.start();
    const Tensor y = layer_norm(x, {8}, w, b);
    CHECK(std::ssize(recorder.records()) == (dim == 2 ? 1 : 0));
    y.backward(Tensor(Array::full(spec->local_sizes(), 1.0, DType::F32), y.spec()));
    recorder.stop();
    CHECK(std::ssize(recorder.records()) == (dim == 2 ? 2 : 0));
  }
}

TEST_CASE("attention of rows that see a single key, wherever it lies: an added mask has exactly no gradient",
          "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Generator random(test_seed());
  const double minus_inf = -std::numeric_limits<double>::infinity();
  for (const std::int64_t keys : {1, 7}) {
    const Dims q_sizes{1, 2, 9, 33};
    const Dims k_sizes{1, 2, keys, 33};
    std::vector<double> added(static_cast<std::size_t>(9 * keys), minus_inf);
    for (std::int64_t row = 0; row < 9; ++row)
      added[static_cast<std::size_t>(row * keys + row % keys)] = 0.25;
    const auto cut = [&](const Dims& sizes, int dim) {
      return randn(sizes, random, DType::F32, ShardSpec::make(mesh, {Shard(dim)}, sizes)).set_requires_grad();
    };
    for (const int dim : {0, 1, 2}) {
      Tensor q = cut(q_sizes, dim);
      Tensor k = cut(k_sizes, dim);
      Tensor v = cut(k_sizes, dim);
      Tensor mask = tensor(added, {9, keys}, DType::F32).set_requires_grad();
      INFO(keys << " keys, cut along dim " << dim);
      scaled_dot_product_attention(q, k, v, {.attn_mask = mask}).backward(randn(q_sizes, random));
      for (const Tensor& t : {mask, q, k})
        CHECK(t.grad().to_vector() == std::vector<double>(static_cast<std::size_t>(t.numel()), 0.0));
    }
  }
}

TEST_CASE("a tensor's own to() is the function of that name", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"x", test_world().size()}});
  Tensor x = ones({5, 3}).redistribute(ShardSpec::make(mesh, {Shard(0)}, {5, 3})).detach();
  x.set_requires_grad();
  CHECK(x.to(x.dtype()).same(x));
  CHECK(x.to(Device::Cpu).same(x));
  const Tensor wide = x.to(DType::F64);
  CHECK(wide.dtype() == DType::F64);
  CHECK(wide.spec() == to(x, DType::F64).spec());
  sum(wide * wide).backward();
  CHECK(x.grad().dtype() == DType::F32);
  CHECK(x.grad().to_vector() == std::vector<double>(15, 2.0));
  CHECK_THROWS_WITH(Tensor().to(DType::F64), Catch::Contains("to: the input is undefined"));
  CHECK_THROWS_WITH(Tensor().to(Device::Cpu), Catch::Contains("to: the input is undefined"));
}

TEST_CASE("attention to values without columns: a result without any, gradients that are zero", "[ops]") {
  auto random = test_random(69);
  const Dims q_sizes{2, 2, 5, 4};
  const Dims k_sizes{2, 2, 7, 4};
  const Dims v_sizes{2, 2, 7, 0};
  const Dims mask_sizes{5, 7};
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(12); ++trial) {
      const bool plain = chance(random, 20);
      const bool causal = chance(random, 30);
      Tensors in;
      for (const Dims& sizes : {q_sizes, k_sizes, v_sizes, mask_sizes}) {
        const SpecPtr spec = random_spec(random, mesh, sizes);
        const Tensor whole = full(sizes, 0.5, DType::F64);
        in.push_back((plain ? whole : redistribute(whole, spec)).detach().set_requires_grad());
      }
      INFO("causal " << causal << (plain ? " plain" : " " + in[1].spec()->str()));
      const Tensor y = scaled_dot_product_attention(
          in[0], in[1], in[2], {.attn_mask = causal ? Tensor() : in[3], .is_causal = causal});
      CHECK(y.sizes() == Dims{2, 2, 5, 0});
      y.backward(zeros_like(y));
      for (std::size_t i = 0; i < (causal ? 3 : 4); ++i) {
        INFO("input " << i);
        REQUIRE(in[i].grad().defined());
        CHECK(in[i].grad().to_vector() == std::vector<double>(static_cast<std::size_t>(in[i].numel()), 0.0));
      }
    }
}

TEST_CASE("attention to values without columns sends no keys around", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const auto cut = [&](const Dims& sizes) {
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, sizes);
    return Tensor(Array::full(spec->local_sizes(), 0.5, DType::F32), spec).set_requires_grad();
  };
  const Tensor q = cut({1, 2, 5, 4});
  const Tensor k = cut({1, 2, 7, 4});
  const Tensor v = cut({1, 2, 7, 0});
  const Recorder& recorder = test_world().recorder();
  const std::int64_t before = recorder.totals().calls;
  const Tensor y = scaled_dot_product_attention(q, k, v);
  y.backward(zeros_like(y));
  CHECK(recorder.totals().calls == before);
  for (const Tensor* t : {&q, &k, &v}) CHECK(t->grad().sizes() == t->sizes());
}
