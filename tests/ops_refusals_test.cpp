// Mixtures of dtypes and integers where floats are needed: refused with the same words on every rank, before
// anything is sent, whatever the placements.
#include <catch2/catch.hpp>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

struct Refusal {
  std::string op;  // the error names it
  std::vector<std::pair<Dims, DType>> inputs;
  std::function<void(const Tensors&)> call;
  std::vector<std::string> said;  // all of it is in the message
};

Tensor placed(Random& random, const DeviceMesh* mesh, const Dims& sizes, DType dtype) {
  if (mesh == nullptr || chance(random, 20)) return Tensor(Array::full(sizes, 1, dtype));
  const SpecPtr spec = random_spec(random, *mesh, sizes, {.partial = dtype != DType::Bool});
  return Tensor(Array::full(spec->local_sizes(), 1, dtype), spec);
}

void check_refused(Random& random, const DeviceMesh* mesh, const Refusal& r) {
  Tensors inputs;
  std::string text = r.op;
  for (const auto& [sizes, dtype] : r.inputs) {
    inputs.push_back(placed(random, mesh, sizes, dtype));
    text += fmt::format("\n  {} {}", name_of(dtype),
                        inputs.back().is_sharded() ? inputs.back().spec()->str() : sizes.str());
  }
  INFO(text);
  Recorder& recorder = test_world().recorder();
  const Recorder::Totals before = recorder.totals();
  const std::string message = refusal([&] { r.call(inputs); });
  CHECK(recorder.totals().calls == before.calls);
  INFO(message);
  CHECK(contains(message, r.op + ":"));
  for (const std::string& part : r.said) CHECK(contains(message, part));
  CHECK(same_everywhere(message));
}

void check_all(const std::vector<Refusal>& refusals, std::uint64_t stream) {
  auto random = test_random(stream);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (const Refusal& r : refusals) {
    check_refused(random, nullptr, r);
    for (int trial = 0; trial < trials(8); ++trial) check_refused(random, &pick(random, meshes), r);
  }
}

constexpr DType kF32 = DType::F32;
constexpr DType kF64 = DType::F64;

}  // namespace

TEST_CASE("operands of different floating dtypes are refused", "[ops]") {
  const std::vector<std::string> both{"f32", "f64"};
  check_all({{"matmul", {{{4, 3}, kF64}, {{3, 5}, kF32}}, [](const Tensors& t) { matmul(t[0], t[1]); }, both},
             {"linear", {{{4, 3}, kF64}, {{5, 3}, kF32}}, [](const Tensors& t) { linear(t[0], t[1]); }, both},
             {"linear",
              {{{4, 3}, kF32}, {{5, 3}, kF32}, {{5}, kF64}},
              [](const Tensors& t) { linear(t[0], t[1], t[2]); },
              both},
             {"conv",
              {{{2, 3, 7}, kF64}, {{4, 3, 3}, kF32}},
              [](const Tensors& t) { conv1d(t[0], t[1], Tensor()); },
              both},
             {"conv",
              {{{2, 3, 7, 5}, kF64}, {{4, 3, 3, 1}, kF64}, {{4}, kF32}},
              [](const Tensors& t) { conv2d(t[0], t[1], t[2]); },
              {"f32"}},
             {"layer_norm",
              {{{4, 6}, kF64}, {{6}, kF32}, {{6}, kF32}},
              [](const Tensors& t) { layer_norm(t[0], {6}, t[1], t[2]); },
              both},
             {"scaled_dot_product_attention",
              {{{1, 2, 5, 4}, kF64}, {{1, 2, 6, 4}, kF64}, {{1, 2, 6, 4}, kF32}},
              [](const Tensors& t) { scaled_dot_product_attention(t[0], t[1], t[2]); },
              both},
             {"scaled_dot_product_attention",
              {{{1, 2, 5, 4}, kF32}, {{1, 2, 6, 4}, kF32}, {{1, 2, 6, 4}, kF32}, {{5, 6}, kF64}},
              [](const Tensors& t) { scaled_dot_product_attention(t[0], t[1], t[2], {.mask = t[3]}); },
              both},
             {"where",
              {{{3, 4}, kF32}, {{3, 4}, kF32}, {{3, 4}, kF32}},
              [](const Tensors& t) { where(t[0], t[1], t[2]); },
              {"bool", "f32"}}},
            64);
}

TEST_CASE("integers where floats are needed are refused", "[ops]") {
  const DType i64 = DType::I64;
  const std::vector<std::string> said{"i64"};
  check_all(
      {{"conv",
        {{{2, 3, 7}, i64}, {{4, 3, 3}, i64}},
        [](const Tensors& t) { conv1d(t[0], t[1], Tensor()); },
        said},
       {"layer_norm", {{{4, 6}, i64}}, [](const Tensors& t) { layer_norm(t[0], {6}); }, said},
       {"scaled_dot_product_attention",
        {{{1, 2, 5, 4}, i64}, {{1, 2, 6, 4}, i64}, {{1, 2, 6, 4}, i64}},
        [](const Tensors& t) { scaled_dot_product_attention(t[0], t[1], t[2]); },
        said},
       {"softmax", {{{4, 6}, i64}}, [](const Tensors& t) { softmax(t[0], 1); }, said},
       {"log_softmax", {{{4, 6}, i64}}, [](const Tensors& t) { log_softmax(t[0], 0); }, said},
       {"mean", {{{4, 6}, i64}}, [](const Tensors& t) { mean(t[0]); }, said},
       {"var", {{{4, 6}, i64}}, [](const Tensors& t) { var(t[0], {1}); }, said},
       {"gelu", {{{4, 6}, i64}}, [](const Tensors& t) { gelu(t[0]); }, said},
       {"silu", {{{4, 6}, DType::I32}}, [](const Tensors& t) { silu(t[0]); }, {"i32"}},
       {"mse_loss", {{{4, 6}, i64}, {{4, 6}, i64}}, [](const Tensors& t) { mse_loss(t[0], t[1]); }, said},
       {"dropout",
        {{{4, 6}, i64}},
        [](const Tensors& t) {
          Generator generator(1);
          dropout(t[0], 0.5, generator);
        },
        said},
       {"matmul",
        {{{4, 3}, DType::Bool}, {{3, 5}, DType::Bool}},
        [](const Tensors& t) { matmul(t[0], t[1]); },
        {"bool"}},
       {"linear",
        {{{4, 3}, DType::Bool}, {{5, 3}, DType::Bool}},
        [](const Tensors& t) { linear(t[0], t[1]); },
        {"bool"}}},
      65);
}

TEST_CASE("random tensors are floating", "[ops]") {
  Generator generator(1);
  CHECK(contains(refusal([&] { randn({3}, generator, DType::I64); }), "i64"));
  CHECK(contains(refusal([&] { rand({3}, generator, DType::Bool); }), "bool"));
  const Tensor x = Tensor(Array::full({3}, 1, DType::I32));
  CHECK(contains(refusal([&] { normal_(x, 0, 1, generator); }), "i32"));
  CHECK(contains(refusal([&] { uniform_(x, 0, 1, generator); }), "i32"));
  CHECK(generator.stream() == 0);  // a refused call draws nothing
}
