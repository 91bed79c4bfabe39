// Sizes, ranks and arguments that do not go together: every operation refuses them with its name, what was
// given and what is allowed, in the same words on every rank, before anything is sent, whatever the
// placements.
#include <catch2/catch.hpp>

#include "tests/refusal_lists.h"

using namespace tessera;
using namespace tessera::refusal_cases;

namespace {

using In = const Tensors&;

Refusal refusal_of(const char* op, const std::vector<Dims>& sizes, std::function<void(In)> call,
                   const std::vector<std::string>& said) {
  Refusal r{op, {}, std::move(call), said};
  for (const Dims& s : sizes) r.inputs.emplace_back(s, DType::F32);
  return r;
}

}  // namespace

std::vector<Refusal> refusal_cases::broadcast_refusals() {
  std::vector<Refusal> list;
  const std::vector<std::string> both{"[3, 4]", "[2, 4]"};
  list.push_back(refusal_of(
      "add", {{3, 4}, {2, 4}}, [](In t) { t[0] + t[1]; }, both));
  list.push_back(refusal_of(
      "sub", {{3, 4}, {2, 4}}, [](In t) { t[0] - t[1]; }, both));
  list.push_back(refusal_of(
      "mul", {{3, 4}, {2, 4}}, [](In t) { t[0] * t[1]; }, both));
  list.push_back(refusal_of(
      "div", {{3, 4}, {2, 4}}, [](In t) { t[0] / t[1]; }, both));
  list.push_back(refusal_of(
      "maximum", {{3, 4}, {2, 4}}, [](In t) { maximum(t[0], t[1]); }, both));
  list.push_back(refusal_of(
      "minimum", {{3, 4}, {2, 4}}, [](In t) { minimum(t[0], t[1]); }, both));
  for (const auto& [op, f] : std::vector<std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>>{
           {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}})
    list.push_back(refusal_of(
        op, {{3, 4}, {2, 4}}, [f = f](In t) { f(t[0], t[1]); }, both));
  list.push_back(refusal_of(
      "pow", {{3, 4}, {2, 4}}, [](In t) { pow(t[0], t[1]); }, both));
  list.push_back(refusal_of(
      "clamp", {{3, 4}, {2, 4}}, [](In t) { clamp(t[0], {}, t[1]); }, both));
  list.push_back(refusal_of(
      "clamp", {{4}, {3, 4}, {2, 4}}, [](In t) { clamp(t[0], t[1], t[2]); }, both));
  list.push_back({"where",
                  {{{3, 1}, DType::Bool}, {{2, 4}, DType::F32}, {{4}, DType::F32}},
                  [](In t) { where(t[0], t[1], t[2]); },
                  {"do not broadcast"}});
  list.push_back({"masked_fill",
                  {{{3, 4}, DType::F32}, {{2, 4}, DType::Bool}},
                  [](In t) { masked_fill(t[0], t[1], 1.0); },
                  {"[3, 4]", "[2, 4]"}});
  list.push_back(refusal_of("dropout", {{3, 4}},
                            [](In t) {
                              Generator g(1);
                              dropout(t[0], 1.5, g);
                            },
                            {"1.5"}));
  return list;
}
TEST_CASE("element-wise operations refuse sizes that do not broadcast", "[ops]") {
  check_all(broadcast_refusals(), 120);
}

std::vector<Refusal> refusal_cases::product_refusals() {
  constexpr const char* kAttention = "scaled_dot_product_attention";
  const auto plain = [](In t) { scaled_dot_product_attention(t[0], t[1], t[2]); };
  const auto masked = [](In t) { scaled_dot_product_attention(t[0], t[1], t[2], {.attn_mask = t[3]}); };
  return {
      refusal_of("matmul", {{4, 3}, {4, 5}}, [](In t) { matmul(t[0], t[1]); }, {"[4, 3]", "[4, 5]"}),
      refusal_of("matmul", {{2, 4, 3}, {3, 3, 5}}, [](In t) { matmul(t[0], t[1]); },
                 {"2 in one and 3 in the other"}),
      refusal_of("matmul", {{}, {3}}, [](In t) { matmul(t[0], t[1]); }, {"[]", "[3]"}),
      refusal_of("linear", {{4, 3}, {5, 2}}, [](In t) { linear(t[0], t[1]); }, {"[4, 3]", "[5, 2]"}),
      refusal_of("linear", {{4, 3}, {2, 5, 3}}, [](In t) { linear(t[0], t[1]); }, {"[out, in] or [in]"}),
      refusal_of("linear", {{4, 3}, {}}, [](In t) { linear(t[0], t[1]); }, {"[4, 3]", "[]"}),
      refusal_of("linear", {{}, {3}}, [](In t) { linear(t[0], t[1]); }, {"[]", "[3]"}),
      refusal_of("linear", {{4, 3}, {4}}, [](In t) { linear(t[0], t[1]); }, {"[4, 3]", "[4]"}),
      refusal_of("linear", {{4, 3}, {3}, {1}}, [](In t) { linear(t[0], t[1], t[2]); },
                 {"no dims", "[3]", "[1]"}),
      refusal_of("linear", {{4, 3}, {5, 3}, {4}}, [](In t) { linear(t[0], t[1], t[2]); }, {"[4]"}),
      refusal_of("einsum", {{4, 3}, {4, 5}},
                 [](In t) {
                   einsum("ab,bc->ac", {t[0], t[1]});
                 },
                 {"b", "3", "4"}),
      refusal_of("conv1d", {{1, 3, 7}, {4, 2, 3}}, [](In t) { conv1d(t[0], t[1], {}); },
                 {"takes 2 input channels, the input [1, 3, 7] has 3"}),
      refusal_of("conv2d", {{1, 3, 7}, {4, 3, 3, 3}}, [](In t) { conv2d(t[0], t[1], {}); }, {"[4, 3, 3, 3]"}),
      refusal_of("conv1d", {{1, 3, 7}, {4, 3, 3}, {3}}, [](In t) { conv1d(t[0], t[1], t[2]); }, {"4", "[3]"}),
      refusal_of("conv1d", {{1, 3, 7}, {4, 3, 9}}, [](In t) { conv1d(t[0], t[1], {}); }, {"7", "9"}),
      refusal_of("conv1d", {{1, 3, 7}, {4, 3, 3}}, [](In t) { conv1d(t[0], t[1], {}, {.stride = {0}}); },
                 {"0"}),
      refusal_of("conv1d", {{1, 3, 7}, {4, 3, 3}}, [](In t) { conv1d(t[0], t[1], {}, {.groups = 2}); },
                 {"2 groups"}),
      refusal_of(kAttention, {{4}, {5, 4}, {5, 4}}, plain, {"two dims", "[4]", "[5, 4]"}),
      refusal_of(kAttention, {{2, 5, 4}, {3, 5, 4}, {3, 5, 4}}, plain, {"[2, 5, 4]", "[3, 5, 4]"}),
      refusal_of(kAttention, {{5, 4}, {6, 3}, {6, 3}}, plain, {"[5, 4]", "[6, 3]"}),
      refusal_of(kAttention, {{3, 5, 4}, {1, 6, 4}, {1, 6, 4}, {2, 5, 6}}, masked,
                 {"mask [2, 5, 6]", "[3, 5, 6]"}),
      refusal_of(kAttention, {{1, 4, 5, 4}, {1, 2, 6, 4}, {1, 2, 6, 4}}, plain,
                 {"[1, 4, 5, 4]", "[1, 2, 6, 4]", "enable_gqa is off"}),
      refusal_of(kAttention, {{1, 3, 5, 4}, {1, 2, 6, 4}, {1, 2, 6, 4}},
                 [](In t) { scaled_dot_product_attention(t[0], t[1], t[2], {.enable_gqa = true}); },
                 {"[1, 3, 5, 4]"}),
      refusal_of(kAttention, {{1, 2, 5, 4}, {1, 2, 6, 4}, {1, 2, 6, 4}, {4, 6}}, masked,
                 {"mask [4, 6]", "[1, 2, 5, 6]"}),
      refusal_of(kAttention, {{1, 2, 5, 4}, {1, 2, 6, 4}, {1, 2, 6, 4}, {5, 6}},
                 [](In t) {
                   scaled_dot_product_attention(t[0], t[1], t[2], {t[3], true});
                 },
                 {"a mask [5, 6] and is_causal", "one of the two is allowed"}),
      refusal_of(kAttention, {{1, 2, 5, 4}, {1, 2, 6, 4}, {1, 2, 6, 4}},
                 [](In t) {
                   const auto generator = std::make_shared<Generator>(1);
                   scaled_dot_product_attention(t[0], t[1], t[2], {.dropout_p = 1.5, .generator = generator});
                 },
                 {"dropout_p 1.5 given", "0 <= dropout_p <= 1 is allowed"}),
      refusal_of(kAttention, {{5, 4}, {6, 4}, {6, 4}},
                 [](In t) { scaled_dot_product_attention(t[0], t[1], t[2], {.dropout_p = 0.1}); },
                 {"dropout_p 0.1 needs a generator"})};
}
TEST_CASE("products refuse sizes that do not go together", "[ops]") { check_all(product_refusals(), 121); }

std::vector<Refusal> refusal_cases::reduction_refusals() {
  return {
      refusal_of("layer_norm", {{4, 6}}, [](In t) { layer_norm(t[0], {4}); }, {"[4]", "[4, 6]"}),
      refusal_of("layer_norm", {{4, 6}, {5}}, [](In t) { layer_norm(t[0], {6}, t[1]); }, {"[5]"}),
      refusal_of("rms_norm", {{4, 6}},
                 [](In t) {
                   rms_norm(t[0], {4, 6, 1});
                 },
                 {"[4, 6, 1]", "[4, 6]"}),
      refusal_of("group_norm", {{2, 6, 3}}, [](In t) { group_norm(t[0], 4); }, {"6 channels", "4 groups"}),
      refusal_of("batch_norm", {{2, 6, 3}, {5}},
                 [](In t) { batch_norm(t[0], {}, t[1], {}, {.training = true}); }, {"6 channels", "[5]"}),
      refusal_of("instance_norm", {{2, 6, 1}}, [](In t) { instance_norm(t[0]); }, {"[2, 6, 1]"}),
      refusal_of("softmax", {{4, 6}}, [](In t) { softmax(t[0], 2); }, {"dim 2"}),
      refusal_of("log_softmax", {{4, 6}}, [](In t) { log_softmax(t[0], -3); }, {"dim -3"}),
      refusal_of("logsumexp", {{4, 6}}, [](In t) { logsumexp(t[0], {2}); }, {"dim 2"}),
      refusal_of("cumsum", {{4, 6}}, [](In t) { cumsum(t[0], 2); }, {"dim 2"}),
      refusal_of("sum", {{4, 6}},
                 [](In t) {
                   sum(t[0], {1, -1});
                 },
                 {"dim 1"}),
      refusal_of("mean", {{4, 6}}, [](In t) { mean(t[0], {2}); }, {"dim 2"}),
      refusal_of("amax", {{4, 0}}, [](In t) { amax(t[0], {1}); }, {"dim 1 of [4, 0] is empty"}),
      refusal_of("var", {{4, 6}}, [](In t) { var(t[0], {3}); }, {"dim 3"}),
      refusal_of("std", {{4, 6}}, [](In t) { tessera::std(t[0], {-4}); }, {"dim -4"}),
      refusal_of("prod", {{4, 6}}, [](In t) { prod(t[0], {2}); }, {"dim 2"}),
      refusal_of("argmax", {{4, 0}}, [](In t) { argmax(t[0], 1); }, {"dim 1 of [4, 0] is empty"}),
      refusal_of("norm", {{4, 6}}, [](In t) { norm(t[0], 2.0, {2}); }, {"dim 2"}),
      refusal_of("mse_loss", {{4, 6}, {4}}, [](In t) { mse_loss(t[0], t[1]); }, {"[4, 6]", "[4]"}),
      refusal_of("l1_loss", {{4, 6}, {3, 1}}, [](In t) { l1_loss(t[0], t[1]); }, {"[4, 6]", "[3, 1]"}),
      refusal_of("kl_div", {{4, 6}, {4, 5}}, [](In t) { kl_div(t[0], t[1]); }, {"[4, 6]", "[4, 5]"}),
      {"cross_entropy",
       {{{4, 6}, DType::F32}, {{5}, DType::I64}},
       [](In t) { cross_entropy(t[0], t[1]); },
       {"[4]", "[4, 6]"}},
      {"nll_loss",
       {{{4, 6}, DType::F32}, {{4, 6}, DType::I64}},
       [](In t) { nll_loss(t[0], t[1]); },
       {"[4]", "[4, 6]"}}};
}
TEST_CASE("norms, reductions and losses refuse sizes and dims that are not there", "[ops]") {
  check_all(reduction_refusals(), 122);
}

std::vector<Refusal> refusal_cases::shape_refusals() {
  return {refusal_of("reshape", {{4, 6}},
                     [](In t) {
                       reshape(t[0], {5, 5});
                     },
                     {"[4, 6]", "[5, 5]"}),
          refusal_of("reshape", {{4, 6}},
                     [](In t) {
                       reshape(t[0], {-1, -1});
                     },
                     {"-1"}),
          refusal_of("reshape", {{4, 6}},
                     [](In t) {
                       reshape(t[0], {-1, 5});
                     },
                     {"[4, 6]", "5"}),
          refusal_of("flatten", {{4, 6}}, [](In t) { flatten(t[0], 1, 0); }, {"1", "0"}),
          refusal_of("unflatten", {{4, 6}},
                     [](In t) {
                       unflatten(t[0], 1, {4, 2});
                     },
                     {"6", "[4, 2]"}),
          refusal_of("permute", {{4, 6}}, [](In t) { permute(t[0], {0}); }, {"[0]"}),
          refusal_of("permute", {{4, 6}},
                     [](In t) {
                       permute(t[0], {1, 1});
                     },
                     {"[1, 1]"}),
          refusal_of("transpose", {{4, 6}}, [](In t) { transpose(t[0], 0, 2); }, {"dim 2"}),
          refusal_of("expand", {{4, 6}},
                     [](In t) {
                       expand(t[0], {4, 7});
                     },
                     {"[4, 6]", "[4, 7]"}),
          refusal_of("unsqueeze", {{4, 6}}, [](In t) { unsqueeze(t[0], 4); }, {"dim 4"})};
}
TEST_CASE("shape operations refuse what does not fit", "[ops]") { check_all(shape_refusals(), 123); }

std::vector<Refusal> refusal_cases::piece_refusals() {
  return {refusal_of("slice", {{4, 6}}, [](In t) { slice(t[0], 0, 0, 4, 0); }, {"step"}),
          refusal_of("slice", {{4, 6}}, [](In t) { slice(t[0], 2, 0, 4); }, {"dim 2"}),
          refusal_of("slice_scatter", {{4, 6}, {3, 6}}, [](In t) { slice_scatter(t[0], t[1], 0, 1, 3); },
                     {"[2, 6]", "[3, 6]"}),
          refusal_of("select_scatter", {{4, 6}, {5}}, [](In t) { select_scatter(t[0], t[1], 0, 1); },
                     {"[6]", "[5]"}),
          refusal_of("select_scatter", {{4, 6}, {6}}, [](In t) { select_scatter(t[0], t[1], 0, 4); },
                     {"no element 4"}),
          refusal_of("cat", {{4, 6}, {4, 5}},
                     [](In t) {
                       cat({t[0], t[1]}, 0);
                     },
                     {"[4, 6]", "[4, 5]"}),
          refusal_of("stack", {{4, 6}, {4, 5}},
                     [](In t) {
                       stack({t[0], t[1]}, 0);
                     },
                     {"[4, 6]", "[4, 5]"}),
          refusal_of("split", {{4, 6}},
                     [](In t) {
                       split(t[0], {2, 3}, 1);
                     },
                     {"5", "6"}),
          refusal_of("roll", {{4, 6}},
                     [](In t) {
                       roll(t[0], {1, 2}, {0});
                     },
                     {"2 shifts given for 1 dims"}),
          refusal_of("pad", {{4, 6}}, [](In t) { pad(t[0], {1}); }, {"1"}),
          refusal_of("pad", {{4, 6}},
                     [](In t) {
                       pad(t[0], {-4, -3});
                     },
                     {"6", "-4", "-3"}),
          refusal_of("pad", {{4, 6}},
                     [](In t) {
                       pad(t[0], {1, 1, 1, 1, 1, 1});
                     },
                     {"6 values given for a tensor of 2 dims"})};
}
TEST_CASE("taking apart and joining refuse what does not fit", "[ops]") { check_all(piece_refusals(), 126); }

std::vector<Refusal> refusal_cases::window_refusals() {
  return {refusal_of("max_pool2d", {{2, 3, 8, 6}}, [](In t) { max_pool2d(t[0], {9}); }, {"9", "8"}),
          refusal_of("avg_pool1d", {{2, 3, 8, 6}}, [](In t) { avg_pool1d(t[0], {2}); }, {"[2, 3, 8, 6]"}),
          refusal_of("adaptive_avg_pool2d", {{2, 3, 8, 6}},
                     [](In t) {
                       adaptive_avg_pool2d(t[0], {2, 2, 2});
                     },
                     {"2"}),
          refusal_of("interpolate", {{2, 3, 8, 6}},
                     [](In t) {
                       interpolate(t[0], {.size = {4, 4, 4}});
                     },
                     {"size"}),
          refusal_of("conv_transpose1d", {{1, 3, 7}, {2, 3, 3}},
                     [](In t) { conv_transpose1d(t[0], t[1], {}); }, {"2 input channels", "[1, 3, 7]"})};
}
TEST_CASE("windows refuse what does not fit", "[ops]") { check_all(window_refusals(), 125); }

std::vector<Refusal> refusal_cases::index_refusals() {
  constexpr DType i64 = DType::I64;
  constexpr DType f32 = DType::F32;
  return {
      {"index_select", {{{4, 6}, f32}, {{2, 2}, i64}}, [](In t) { index_select(t[0], 0, t[1]); }, {"[2, 2]"}},
      {"gather", {{{4, 6}, f32}, {{2}, i64}}, [](In t) { gather(t[0], 0, t[1]); }, {"dims"}},
      {"gather", {{{4, 6}, f32}, {{2, 7}, i64}}, [](In t) { gather(t[0], 0, t[1]); }, {"[2, 7]", "[4, 6]"}},
      // Numbers of which none can be right: known to all ranks, wherever they lie.
      {"index_select", {{{4, 0}, f32}, {{2}, i64}}, [](In t) { index_select(t[0], 1, t[1]); }, {"size 0"}},
      {"embedding", {{{0, 3}, f32}, {{2, 2}, i64}}, [](In t) { embedding(t[0], t[1]); }, {"size 0"}},
      {"scatter_add",
       {{{4, 6}, f32}, {{2, 6}, i64}, {{2, 5}, f32}},
       [](In t) { scatter_add(t[0], 0, t[1], t[2]); },
       {"[2, 6]", "[2, 5]"}},
      {"embedding", {{{6}, f32}, {{2}, i64}}, [](In t) { embedding(t[0], t[1]); }, {"[6]"}},
      {"embedding", {{{6, 2}, f32}, {{2}, f32}}, [](In t) { embedding(t[0], t[1]); }, {"f32"}},
      {"sort", {{{4, 6}, f32}}, [](In t) { sort(t[0], 2); }, {"dim 2"}},
      {"median", {{{4, 6}, f32}}, [](In t) { median(t[0], 2); }, {"dim 2"}},
      {"median", {{{0, 6}, f32}}, [](In t) { median(t[0], 0); }, {"dim 0 of [0, 6] is empty"}},
      {"topk", {{{4, 6}, f32}}, [](In t) { topk(t[0], 7); }, {"7", "6"}},
      {"topk", {{{4, 6}, f32}}, [](In t) { topk(t[0], -1); }, {"-1"}},
      {"knn", {{{9, 3}, f32}, {{4, 2}, f32}}, [](In t) { knn(t[0], t[1], 2); }, {"[9, 3]", "[4, 2]"}},
      {"knn", {{{9, 3}, f32}, {{4, 3}, f32}}, [](In t) { knn(t[0], t[1], -1); }, {"-1"}},
      {"radius_search",
       {{{9, 3}, f32}, {{4, 3}, f32}},
       [](In t) { radius_search(t[0], t[1], -1.0); },
       {"-1"}}};
}
TEST_CASE("indexing, order and neighbours refuse what does not fit", "[ops]") {
  check_all(index_refusals(), 124);
}
