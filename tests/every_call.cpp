#include "tests/every_call.h"

#include <utility>

#include "ops/elementwise/unary_functions.h"

namespace tessera::every_call {
namespace {

using In = const Tensors&;
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Reducing = Tensor (*)(const Tensor&, const Dims&, bool);
constexpr DType kI64 = DType::I64;

class Adder {
 public:
  explicit Adder(std::vector<EveryCall>& list) : list_(list) {}
  // Under one name in the table and in errors.
  void operator()(const char* op, std::vector<InputSize> inputs, std::function<void(In)> call,
                  std::size_t optional = 0) const {
    list_.push_back({op, op, std::move(inputs), std::move(call), optional});
  }

 private:
  std::vector<EveryCall>& list_;
};

}  // namespace

void add_pointwise(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  const auto add_unary = [&](const char* op, Tensor (*f)(const Tensor&)) {
    add_call(op, {{{4, 6}}}, [f](In t) { f(t[0]); });
  };
  for (const auto& [op, f] : unary_functions()) add_unary(op, f);
  add_unary("sign", sign);
  add_unary("contiguous", contiguous);
  for (const auto& [op, f] : std::vector<std::pair<const char*, Binary>>{
           {"sub", [](const Tensor&a, const Tensor&b) { return sub(a, b); }},
           {"mul", mul},
           {"div", div},
           {"maximum", maximum},
           {"minimum", minimum},
           {"eq", eq},
           {"ne", ne},
           {"lt", lt},
           {"le", le},
           {"gt", gt},
           {"ge", ge}})
    add_call(op, {{{4, 6}}, {{4, 6}}}, [f = f](In t) { f(t[0], t[1]); });
  add_call("add", {{{4, 6}}, {{4, 6}}}, [](In t) { add(t[0], t[1]); });
  add_call("gelu", {{{4, 6}}}, [](In t) { gelu(t[0]); });
  add_call("leaky_relu", {{{4, 6}}}, [](In t) { leaky_relu(t[0]); });
  add_call("elu", {{{4, 6}}}, [](In t) { elu(t[0]); });
  add_call("clamp", {{{4, 6}}, {{4, 6}}}, [](In t) {
    clamp(t[0], t[1]);
    clamp(t[0], 0, 1);
  });
  list.push_back({"pow_scalar", "pow", {{{4, 6}}}, [](In t) { pow(t[0], 3.0); }});
  add_call("pow", {{{4, 6}}, {{4, 6}}}, [](In t) {
    pow(t[0], t[1]);
    pow(2.0, t[1]);
  });
  add_call("affine", {{{4, 6}}}, [](In t) { affine(t[0], 2, 1); });
  add_call("to", {{{4, 6}}}, [](In t) { to(t[0], DType::F64); });
  add_call("where", {{{4, 6}, DType::Bool}, {{4, 6}}, {{4, 6}}}, [](In t) { where(t[0], t[1], t[2]); });
  add_call("masked_fill", {{{4, 6}}, {{4, 6}, DType::Bool}}, [](In t) { masked_fill(t[0], t[1], 1.0); });
  add_call("dropout", {{{4, 6}}}, [](In t) {
    Generator g(1);
    dropout(t[0], 0.5, g);
  });
}

void add_reductions(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  for (const auto& [op, f] : std::vector<std::pair<const char*, Reducing>>{
           {"sum", [](const Tensor&x, const Dims&d, bool k) { return sum(x, d, k); }},
           {"mean", [](const Tensor&x, const Dims&d, bool k) { return mean(x, d, k); }},
           {"amax", amax},
           {"amin", amin},
           {"prod", [](const Tensor&x, const Dims&d, bool k) { return prod(x, d, k); }},
           {"any", any},
           {"all", all},
           {"logsumexp", logsumexp}})
    add_call(op, {{{4, 6}}}, [f = f](In t) { f(t[0], {1}, false); });
  add_call("count_nonzero", {{{4, 6}}}, [](In t) { count_nonzero(t[0]); });
  add_call("var", {{{4, 6}}}, [](In t) { var(t[0]); });
  add_call("std", {{{4, 6}}}, [](In t) { tessera::std(t[0]); });
  add_call("norm", {{{4, 6}}}, [](In t) { norm(t[0]); });
  add_call("vector_norm", {{{4, 6}}}, [](In t) { vector_norm(t[0]); });
  add_call("argmax", {{{4, 6}}}, [](In t) { argmax(t[0], 1); });
  add_call("argmin", {{{4, 6}}}, [](In t) { argmin(t[0], 1); });
  add_call("cumsum", {{{4, 6}}}, [](In t) { cumsum(t[0], 1); });
  add_call("softmax", {{{4, 6}}}, [](In t) { softmax(t[0], 1); });
  add_call("log_softmax", {{{4, 6}}}, [](In t) { log_softmax(t[0], 1); });
  add_call("sort", {{{4, 6}}}, [](In t) { sort(t[0]); });
  add_call("argsort", {{{4, 6}}}, [](In t) { argsort(t[0]); });
  add_call("topk", {{{4, 6}}}, [](In t) { topk(t[0], 2); });
  add_call("median", {{{4, 6}}}, [](In t) { median(t[0], 1); });
  add_call(
      "layer_norm", {{{4, 6}}, {{6}}, {{6}}}, [](In t) { layer_norm(t[0], {6}, t[1], t[2]); }, 2);
  add_call(
      "rms_norm", {{{4, 6}}, {{6}}}, [](In t) { rms_norm(t[0], {6}, t[1]); }, 1);
  add_call(
      "add_layer_norm", {{{4, 6}}, {{4, 6}}, {{6}}, {{6}}},
      [](In t) { add_layer_norm(t[0], t[1], {6}, {.weight = t[2], .bias = t[3]}); }, 2);
  add_call(
      "group_norm", {{{2, 6, 3}}, {{6}}, {{6}}}, [](In t) { group_norm(t[0], 2, t[1], t[2]); }, 2);
  const std::vector<InputSize> channels{{{2, 6, 3}}, {{6}}, {{6}}, {{6}}, {{6}}};
  add_call(
      "batch_norm", channels,
      [](In t) {
        batch_norm(t[0], {t[3], t[4]}, t[1], t[2], {.training = true});
      },
      4);
  add_call(
      "instance_norm", channels,
      [](In t) {
        instance_norm(t[0], {t[3], t[4]}, t[1], t[2]);
      },
      4);
}

void add_losses(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  const std::vector<InputSize> pair{{{4, 6}}, {{4, 6}}};
  const std::vector<InputSize> classes{{{4, 6}}, {{4}, kI64}, {{6}}};
  add_call("mse_loss", pair, [](In t) { mse_loss(t[0], t[1]); });
  add_call("l1_loss", pair, [](In t) { l1_loss(t[0], t[1]); });
  add_call("smooth_l1_loss", pair, [](In t) { smooth_l1_loss(t[0], t[1]); });
  add_call("huber_loss", pair, [](In t) { huber_loss(t[0], t[1]); });
  add_call("kl_div", pair, [](In t) { kl_div(t[0], t[1]); });
  add_call(
      "binary_cross_entropy", {{{4, 6}}, {{4, 6}}, {{6}}},
      [](In t) { binary_cross_entropy(t[0], t[1], t[2]); }, 1);
  add_call(
      "binary_cross_entropy_with_logits", {{{4, 6}}, {{4, 6}}, {{6}}, {{6}}},
      [](In t) { binary_cross_entropy_with_logits(t[0], t[1], t[2], Reduction::Mean, t[3]); }, 2);
  add_call(
      "cross_entropy", classes, [](In t) { cross_entropy(t[0], t[1], t[2]); }, 1);
  add_call(
      "nll_loss", classes, [](In t) { nll_loss(t[0], t[1], t[2]); }, 1);
}

void add_products(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  add_call("matmul", {{{4, 3}}, {{3, 5}}}, [](In t) { matmul(t[0], t[1]); });
  add_call(
      "linear", {{{4, 3}}, {{5, 3}}, {{5}}}, [](In t) { linear(t[0], t[1], t[2]); }, 1);
  add_call("einsum", {{{4, 3}}, {{3, 5}}}, [](In t) { einsum("ab,bc->ac", t); });
  add_call(
      "conv1d", {{{1, 3, 7}}, {{4, 3, 3}}, {{4}}}, [](In t) { conv1d(t[0], t[1], t[2]); }, 1);
  add_call(
      "conv2d", {{{1, 3, 7, 5}}, {{4, 3, 3, 3}}, {{4}}}, [](In t) { conv2d(t[0], t[1], t[2]); }, 1);
  add_call(
      "conv3d", {{{1, 3, 7, 5, 4}}, {{4, 3, 3, 3, 3}}, {{4}}}, [](In t) { conv3d(t[0], t[1], t[2]); }, 1);
  add_call(
      "conv_transpose1d", {{{1, 3, 7}}, {{3, 4, 3}}, {{4}}}, [](In t) { conv_transpose1d(t[0], t[1], t[2]); },
      1);
  add_call(
      "conv_transpose2d", {{{1, 3, 7, 5}}, {{3, 4, 3, 3}}, {{4}}},
      [](In t) { conv_transpose2d(t[0], t[1], t[2]); }, 1);
  add_call(
      "conv_transpose3d", {{{1, 3, 7, 5, 4}}, {{3, 4, 3, 3, 3}}, {{4}}},
      [](In t) { conv_transpose3d(t[0], t[1], t[2]); }, 1);
  add_call(
      "scaled_dot_product_attention", {{{1, 2, 5, 4}}, {{1, 2, 6, 4}}, {{1, 2, 6, 4}}, {{5, 6}}},
      [](In t) { scaled_dot_product_attention(t[0], t[1], t[2], {.attn_mask = t[3]}); }, 1);
}

void add_windows(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  const std::vector<InputSize> line{{{2, 3, 8}}};
  const std::vector<InputSize> map{{{2, 3, 8, 6}}};
  const std::vector<InputSize> volume{{{2, 3, 8, 6, 4}}};
  add_call("max_pool1d", line, [](In t) { max_pool1d(t[0], {2}); });
  add_call("max_pool2d", map, [](In t) { max_pool2d(t[0], {2}); });
  add_call("max_pool3d", volume, [](In t) { max_pool3d(t[0], {2}); });
  add_call("avg_pool1d", line, [](In t) { avg_pool1d(t[0], {2}); });
  add_call("avg_pool2d", map, [](In t) { avg_pool2d(t[0], {2}); });
  add_call("avg_pool3d", volume, [](In t) { avg_pool3d(t[0], {2}); });
  add_call("adaptive_avg_pool1d", line, [](In t) { adaptive_avg_pool1d(t[0], {2}); });
  add_call("adaptive_avg_pool2d", map, [](In t) { adaptive_avg_pool2d(t[0], {2, 2}); });
  add_call("adaptive_avg_pool3d", volume, [](In t) { adaptive_avg_pool3d(t[0], {2, 2, 2}); });
  add_call("interpolate", map, [](In t) { interpolate(t[0], {.size = {4, 4}}); });
}

void add_shapes(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  const std::vector<InputSize> x{{{4, 6}}};
  add_call("reshape", x, [](In t) { reshape(t[0], {6, 4}); });
  add_call("flatten", x, [](In t) { flatten(t[0]); });
  add_call("unflatten", x, [](In t) { unflatten(t[0], 1, {2, 3}); });
  add_call("permute", x, [](In t) { permute(t[0], {1, 0}); });
  add_call("transpose", x, [](In t) { transpose(t[0], 0, 1); });
  add_call("unsqueeze", x, [](In t) { unsqueeze(t[0], 1); });
  add_call("squeeze", x, [](In t) { squeeze(t[0]); });
  add_call("movedim", x, [](In t) { movedim(t[0], {0}, {1}); });
  add_call("expand", x, [](In t) { expand(t[0], {2, 4, 6}); });
  add_call("broadcast_to", x, [](In t) { broadcast_to(t[0], {2, 4, 6}); });
  add_call("slice", x, [](In t) { slice(t[0], 0, 1, 3); });
  add_call("narrow", x, [](In t) { narrow(t[0], 0, 1, 2); });
  add_call("select", x, [](In t) { select(t[0], 0, 1); });
  add_call("split", x, [](In t) { split(t[0], {1, 3}); });
  add_call("chunk", x, [](In t) { chunk(t[0], 2); });
  add_call("unbind", x, [](In t) { unbind(t[0]); });
  add_call("flip", x, [](In t) { flip(t[0], {0}); });
  add_call("roll", x, [](In t) { roll(t[0], {1}, {0}); });
  add_call("repeat", x, [](In t) { repeat(t[0], {2, 1}); });
  add_call("tile", x, [](In t) { tile(t[0], {2}); });
  add_call("repeat_interleave", x, [](In t) { repeat_interleave(t[0], 2, 1); });
  add_call("diagonal", x, [](In t) { diagonal(t[0]); });
  add_call("pad", x, [](In t) { pad(t[0], {1, 1}); });
  add_call("cat", {{{4, 6}}, {{3, 6}}}, [](In t) { cat(t); });
  add_call("stack", {{{4, 6}}, {{4, 6}}}, [](In t) { stack(t); });
  add_call("slice_scatter", {{{4, 6}}, {{2, 6}}}, [](In t) { slice_scatter(t[0], t[1], 0, 1, 3); });
  add_call("select_scatter", {{{4, 6}}, {{6}}}, [](In t) { select_scatter(t[0], t[1], 0, 1); });
}

void add_indexing(std::vector<EveryCall>& list) {
  const Adder add_call(list);
  add_call("index_select", {{{4, 6}}, {{2}, kI64}}, [](In t) { index_select(t[0], 0, t[1]); });
  add_call("gather", {{{4, 6}}, {{2, 6}, kI64}}, [](In t) { gather(t[0], 0, t[1]); });
  add_call("scatter_add", {{{4, 6}}, {{2, 6}, kI64}, {{2, 6}}},
           [](In t) { scatter_add(t[0], 0, t[1], t[2]); });
  add_call("embedding", {{{4, 6}}, {{2}, kI64}}, [](In t) { embedding(t[0], t[1]); });
  add_call("take_along_dim", {{{4, 6}}, {{2, 6}, kI64}}, [](In t) { take_along_dim(t[0], t[1], 0); });
  add_call("one_hot", {{{4}, kI64}}, [](In t) { one_hot(t[0], 3); });
  add_call("knn", {{{9, 3}}, {{4, 3}}}, [](In t) { knn(t[0], t[1], 2); });
  add_call("radius_search", {{{9, 3}}, {{4, 3}}}, [](In t) { radius_search(t[0], t[1], 1.0); });
}

std::vector<EveryCall> every_call() {
  std::vector<EveryCall> list;
  for (const auto add : {&add_pointwise, &add_reductions, &add_losses, &add_products, &add_windows,
                         &add_shapes, &add_indexing})
    add(list);
  return list;
}

}  // namespace tessera::every_call
