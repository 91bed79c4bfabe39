// Mixtures of dtypes and integers where floats are needed: refused with the same words on every rank, before
// anything is sent, whatever the placements.
#include <catch2/catch.hpp>

#include "tests/refusal_lists.h"

using namespace tessera;
using namespace tessera::refusal_cases;

namespace {

constexpr DType kF32 = DType::F32;
constexpr DType kF64 = DType::F64;

}  // namespace

std::vector<Refusal> refusal_cases::mixture_refusals() {
  const std::vector<std::string> both{"f32", "f64"};
  return {{"matmul", {{{4, 3}, kF64}, {{3, 5}, kF32}}, [](const Tensors& t) { matmul(t[0], t[1]); }, both},
          {"linear", {{{4, 3}, kF64}, {{5, 3}, kF32}}, [](const Tensors& t) { linear(t[0], t[1]); }, both},
          {"linear",
           {{{4, 3}, kF32}, {{5, 3}, kF32}, {{5}, kF64}},
           [](const Tensors& t) { linear(t[0], t[1], t[2]); },
           both},
          {"conv1d",
           {{{2, 3, 7}, kF64}, {{4, 3, 3}, kF32}},
           [](const Tensors& t) { conv1d(t[0], t[1], Tensor()); },
           both},
          {"conv2d",
           {{{2, 3, 7, 5}, kF64}, {{4, 3, 3, 1}, kF64}, {{4}, kF32}},
           [](const Tensors& t) { conv2d(t[0], t[1], t[2]); },
           {"f32"}},
          {"layer_norm",
           {{{4, 6}, kF64}, {{6}, kF32}, {{6}, kF32}},
           [](const Tensors& t) { layer_norm(t[0], {6}, t[1], t[2]); },
           both},
          {"add_layer_norm",
           {{{4, 6}, kF64}, {{4, 6}, kF32}},
           [](const Tensors& t) { add_layer_norm(t[0], t[1], {6}); },
           both},
          {"add_layer_norm",
           {{{4, 6}, kF32}, {{6}, kF32}},
           [](const Tensors& t) { add_layer_norm(t[0], t[1], {6}); },
           {"[4, 6]", "[6]"}},
          {"scaled_dot_product_attention",
           {{{1, 2, 5, 4}, kF64}, {{1, 2, 6, 4}, kF64}, {{1, 2, 6, 4}, kF32}},
           [](const Tensors& t) { scaled_dot_product_attention(t[0], t[1], t[2]); },
           both},
          {"scaled_dot_product_attention",
           {{{1, 2, 5, 4}, kF32}, {{1, 2, 6, 4}, kF32}, {{1, 2, 6, 4}, kF32}, {{5, 6}, kF64}},
           [](const Tensors& t) { scaled_dot_product_attention(t[0], t[1], t[2], {.attn_mask = t[3]}); },
           both},
          {"where",
           {{{3, 4}, kF32}, {{3, 4}, kF32}, {{3, 4}, kF32}},
           [](const Tensors& t) { where(t[0], t[1], t[2]); },
           {"bool", "f32"}}};
}
TEST_CASE("operands of different floating dtypes are refused", "[ops]") { check_all(mixture_refusals(), 64); }

std::vector<Refusal> refusal_cases::integer_refusals() {
  const DType i64 = DType::I64;
  const std::vector<std::string> said{"i64"};
  return {{"conv1d",
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
           {"takes floating and integer tensors", "bool"}},
          {"relu",
           {{{4, 3}, DType::Bool}},
           [](const Tensors& t) { relu(t[0]); },
           {"takes floating and integer tensors", "bool"}},
          {"neg",
           {{{4, 3}, DType::Bool}},
           [](const Tensors& t) { neg(t[0]); },
           {"takes floating and integer tensors", "bool"}}};
}
TEST_CASE("integers where floats are needed are refused", "[ops]") { check_all(integer_refusals(), 65); }

TEST_CASE("random tensors are floating", "[ops]") {
  Generator generator(1);
  CHECK(contains(refusal([&] { randn({3}, generator, DType::I64); }), "i64"));
  CHECK(contains(refusal([&] { rand({3}, generator, DType::Bool); }), "bool"));
  const Tensor x = Tensor(Array::full({3}, 1, DType::I32));
  CHECK(contains(refusal([&] { normal_(x, 0, 1, generator); }), "i32"));
  CHECK(contains(refusal([&] { uniform_(x, 0, 1, generator); }), "i32"));
  CHECK(generator.stream() == 0);  // a refused call draws nothing
}
