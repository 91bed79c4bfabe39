// Dtypes that an operation does not take: refused with its name, what was
// given and what is allowed, in the same words on every rank, before anything is sent.
#include <catch2/catch.hpp>

#include <cmath>
#include <string_view>

#include "ops/elementwise/unary_functions.h"
#include "tests/refusal_lists.h"

namespace tessera::refusal_cases {
namespace {

using In = const Tensors&;
constexpr DType kI64 = DType::I64;
constexpr DType kF32 = DType::F32;
constexpr DType kBool = DType::Bool;

}  // namespace

// What PyTorch refuses too; where it makes floats of integers, so do we.
std::vector<Refusal> pointwise_dtype_refusals() {
  std::vector<Refusal> list;
  const auto add_two = [&](const char* op, const std::function<void(In)>& call) {
    list.push_back({op, {{{4, 6}, kI64}}, call, {"needs a floating tensor", "i64"}});
    list.push_back({op, {{{4, 6}, kBool}}, call, {"needs a floating tensor", "bool"}});
  };
  for (const auto& [op, f] : unary_functions())
    if (std::string_view(op) == "silu" || std::string_view(op) == "softplus")
      add_two(op, [f = f](In t) { f(t[0]); });
  add_two("gelu", [](In t) { gelu(t[0]); });
  add_two("leaky_relu", [](In t) { leaky_relu(t[0]); });
  add_two("elu", [](In t) { elu(t[0]); });
  const auto add_bool = [&](const char* op, const std::function<void(In)>& call) {
    list.push_back({op, {{{4, 6}, kBool}}, call, {"takes floating and integer tensors", "bool"}});
  };
  add_bool("relu", [](In t) { relu(t[0]); });
  add_bool("neg", [](In t) { neg(t[0]); });
  add_bool("abs", [](In t) { abs(t[0]); });
  list.push_back({"pow", {{{4, 6}, kI64}}, [](In t) { pow(t[0], -1.0); }, {"exponents from 0", "i64", "-1"}});
  list.push_back({"pow", {{{4, 6}, kBool}}, [](In t) { pow(t[0], -2.0); }, {"exponents from 0", "-2"}});
  list.push_back(
      {"clamp", {{{4, 6}, DType::I32}}, [](In t) { clamp(t[0], 0, 1e12); }, {"1000000000000", "i32"}});
  list.push_back({"sub", {{{4, 6}, kBool}, {{4, 6}, kBool}}, [](In t) { sub(t[0], t[1]); }, {"bool"}});
  const std::vector<std::pair<Dims, DType>> bools{{{4, 6}, kBool}, {{4, 6}, kBool}};
  list.push_back({"pow", bools, [](In t) { pow(t[0], t[1]); }, {"two of bool"}});
  list.push_back({"clamp",
                  {{{4, 6}, kF32}},
                  [](In t) { clamp(t[0], Tensor(), Tensor()); },
                  {"min and max are undefined"}});
  list.push_back({"div", bools, [](In t) { div(t[0], t[1], RoundingMode::Floor); }, {"two of bool"}});
  const std::vector<std::pair<Dims, DType>> whole{{{4, 6}, kI64}, {{4, 6}, DType::I32}};
  list.push_back({"add", whole, [](In t) { add(t[0], t[1], 0.5); }, {"whole", "i64", "i32", "0.5"}});
  list.push_back({"sub", whole, [](In t) { sub(t[0], t[1], 0.5); }, {"whole", "i64", "i32", "0.5"}});
  list.push_back(
      {"softplus", {{{4, 6}, kI64}}, [](In t) { softplus(t[0], 2); }, {"needs a floating tensor", "i64"}});
  list.push_back({"where",
                  {{{4, 6}, kI64}, {{4, 6}, kF32}},
                  [](In t) { where(t[0], t[1], 0.5); },
                  {"must be bool", "i64"}});
  return list;
}

std::vector<Refusal> reduction_dtype_refusals() {
  std::vector<Refusal> list;
  for (const DType type : {kI64, kBool}) {
    const std::vector<std::pair<Dims, DType>> x{{{4, 6}, type}};
    const std::vector<std::string> said{std::string(name_of(type))};
    list.push_back({"mean", x, [](In t) { mean(t[0]); }, said});
    list.push_back({"var", x, [](In t) { var(t[0]); }, said});
    list.push_back({"std", x, [](In t) { tessera::std(t[0]); }, said});
    list.push_back({"norm", x, [](In t) { norm(t[0]); }, said});
    list.push_back({"vector_norm", x, [](In t) { vector_norm(t[0]); }, said});
    list.push_back({"softmax", x, [](In t) { softmax(t[0], 0); }, said});
    list.push_back({"log_softmax", x, [](In t) { log_softmax(t[0], 0); }, said});
    list.push_back({"layer_norm", x, [](In t) { layer_norm(t[0], {6}); }, said});
    list.push_back({"rms_norm", x, [](In t) { rms_norm(t[0], {6}); }, said});
    list.push_back({"group_norm", x, [](In t) { group_norm(t[0], 2); }, said});
    list.push_back({"batch_norm", x, [](In t) { batch_norm(t[0], {}, {}, {}, {.training = true}); }, said});
    list.push_back({"instance_norm", {{{2, 4, 6}, type}}, [](In t) { instance_norm(t[0]); }, said});
  }
  list.push_back({"median", {{{4, 6}, kBool}}, [](In t) { median(t[0]); }, {"bool"}});
  const std::vector<std::pair<Dims, DType>> x{{{4, 6}, kF32}};
  const std::vector<std::string> floating{"dtype i64", "floating"};
  list.push_back({"mean", x, [](In t) { mean(t[0], {1}, false, kI64); }, floating});
  list.push_back({"softmax", x, [](In t) { softmax(t[0], 1, kI64); }, floating});
  list.push_back({"log_softmax", x, [](In t) { log_softmax(t[0], 1, kI64); }, floating});
  list.push_back({"cumsum", x, [](In t) { cumsum(t[0], 1, kBool); }, {"dtype bool", "floating and integer"}});
  // The dim before the cast, which may send.
  const std::vector<std::string> dim{"dim 2"};
  const std::vector<std::pair<Dims, DType>> wide{{{4, 6}, DType::F64}};
  list.push_back({"sum", wide, [](In t) { sum(t[0], {2}, false, kF32); }, dim});
  list.push_back({"mean", wide, [](In t) { mean(t[0], {2}, false, kF32); }, dim});
  list.push_back({"prod", wide, [](In t) { prod(t[0], {2}, false, kF32); }, dim});
  list.push_back({"cumsum", wide, [](In t) { cumsum(t[0], 2, kF32); }, dim});
  list.push_back({"softmax", wide, [](In t) { softmax(t[0], 2, kF32); }, dim});
  return list;
}

std::vector<Refusal> loss_dtype_refusals() {
  std::vector<Refusal> list;
  const std::vector<std::pair<Dims, DType>> whole{{{4, 6}, kI64}, {{4, 6}, kI64}};
  list.push_back({"mse_loss", whole, [](In t) { mse_loss(t[0], t[1]); }, {"i64"}});
  list.push_back({"l1_loss", whole, [](In t) { l1_loss(t[0], t[1]); }, {"i64"}});
  list.push_back({"smooth_l1_loss", whole, [](In t) { smooth_l1_loss(t[0], t[1]); }, {"i64"}});
  list.push_back(
      {"smooth_l1_loss", whole, [](In t) { smooth_l1_loss(t[0], t[1], Reduction::Mean, 0.0); }, {"i64"}});
  list.push_back({"huber_loss", whole, [](In t) { huber_loss(t[0], t[1]); }, {"i64"}});
  list.push_back({"kl_div", whole, [](In t) { kl_div(t[0], t[1]); }, {"i64"}});
  list.push_back({"binary_cross_entropy", whole, [](In t) { binary_cross_entropy(t[0], t[1]); }, {"i64"}});
  list.push_back({"binary_cross_entropy_with_logits",
                  whole,
                  [](In t) { binary_cross_entropy_with_logits(t[0], t[1]); },
                  {"i64"}});
  list.push_back({"cross_entropy",
                  {{{4, 6}, kI64}, {{4}, kI64}},
                  [](In t) { cross_entropy(t[0], t[1]); },
                  {"i64 [4, 6]"}});
  list.push_back(
      {"nll_loss", {{{4, 6}, kF32}, {{4}, DType::I32}}, [](In t) { nll_loss(t[0], t[1]); }, {"i32"}});
  return list;
}

std::vector<Refusal> window_dtype_refusals() {
  std::vector<Refusal> list;
  const std::vector<std::pair<Dims, DType>> map{{{2, 3, 8, 6}, kI64}};
  list.push_back({"max_pool2d", map, [](In t) { max_pool2d(t[0], {2}); }, {"i64"}});
  list.push_back({"avg_pool2d", map, [](In t) { avg_pool2d(t[0], {2}); }, {"i64"}});
  list.push_back({"adaptive_avg_pool2d", map, [](In t) { adaptive_avg_pool2d(t[0], {2, 2}); }, {"i64"}});
  list.push_back({"interpolate", map, [](In t) { interpolate(t[0], {.size = {4, 4}}); }, {"i64"}});
  list.push_back({"pad",
                  {{{2, 3, 8, 6}, DType::Bool}},
                  [](In t) {
                    pad(t[0], {1, 1, 1, 1}, PadMode::Reflect);
                  },
                  {"bool"}});
  list.push_back({"conv2d",
                  {{{2, 3, 8, 6}, kI64}, {{4, 3, 3, 3}, kI64}},
                  [](In t) { conv2d(t[0], t[1], {}); },
                  {"i64"}});
  list.push_back({"conv3d",
                  {{{2, 3, 8, 6, 4}, kF32}, {{4, 3, 3, 3, 3}, DType::F64}},
                  [](In t) { conv3d(t[0], t[1], {}); },
                  {"f32", "f64"}});
  list.push_back({"conv_transpose2d",
                  {{{2, 3, 8, 6}, kI64}, {{3, 4, 3, 3}, kI64}},
                  [](In t) { conv_transpose2d(t[0], t[1], {}); },
                  {"i64"}});
  list.push_back({"conv_transpose3d",
                  {{{2, 3, 8, 6, 4}, kF32}, {{3, 4, 3, 3, 3}, DType::F64}},
                  [](In t) { conv_transpose3d(t[0], t[1], {}); },
                  {"f32", "f64"}});
  return list;
}

std::vector<Refusal> index_dtype_refusals() {
  std::vector<Refusal> list;
  list.push_back({"embedding",
                  {{{4, 6}, kI64}, {{2}, kI64}},
                  [](In t) { embedding(t[0], t[1], {.max_norm = 1.0}); },
                  {"max_norm needs a floating table", "i64"}});
  list.push_back({"embedding",
                  {{{4, 6}, kF32}, {{2}, kI64}},
                  [](In t) { embedding(t[0], t[1], {.max_norm = 1.0, .norm_type = std::nan("")}); },
                  {"norm_type nan"}});
  const std::vector<std::pair<Dims, DType>> picked{{{4, 6}, kF32}, {{2, 6}, kF32}};
  list.push_back({"index_select",
                  {{{4, 6}, kF32}, {{2}, kF32}},
                  [](In t) { index_select(t[0], 0, t[1]); },
                  {"i64", "f32"}});
  list.push_back({"gather", picked, [](In t) { gather(t[0], 0, t[1]); }, {"i64", "f32"}});
  list.push_back({"take_along_dim", picked, [](In t) { take_along_dim(t[0], t[1], 0); }, {"i64", "f32"}});
  list.push_back({"scatter_add",
                  {{{4, 6}, kF32}, {{2, 6}, kI64}, {{2, 6}, DType::F64}},
                  [](In t) { scatter_add(t[0], 0, t[1], t[2]); },
                  {"f32", "f64"}});
  list.push_back({"one_hot", {{{4}, kF32}}, [](In t) { one_hot(t[0], 3); }, {"i64", "f32"}});
  list.push_back({"masked_fill",
                  {{{4, 6}, kF32}, {{4, 6}, kF32}},
                  [](In t) { masked_fill(t[0], t[1], 1.0); },
                  {"bool", "f32"}});
  list.push_back({"slice_scatter",
                  {{{4, 6}, kF32}, {{2, 6}, kI64}},
                  [](In t) { slice_scatter(t[0], t[1], 0, 1, 3); },
                  {"f32", "i64"}});
  list.push_back({"knn", {{{9, 3}, kF32}, {{4, 3}, DType::F64}}, [](In t) { knn(t[0], t[1], 2); }, {"f64"}});
  list.push_back({"radius_search",
                  {{{9, 3}, kI64}, {{4, 3}, kI64}},
                  [](In t) { radius_search(t[0], t[1], 1.0); },
                  {"i64"}});
  return list;
}

}  // namespace tessera::refusal_cases

using namespace tessera::refusal_cases;

TEST_CASE("dtypes that an operation does not take are refused", "[ops]") {
  check_all(pointwise_dtype_refusals(), 140);
  check_all(reduction_dtype_refusals(), 141);
  check_all(loss_dtype_refusals(), 142);
  check_all(window_dtype_refusals(), 143);
  check_all(index_dtype_refusals(), 144);
}
