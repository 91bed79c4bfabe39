#include "bench/subject_list.h"

#include "ops/elementwise/unary_functions.h"
#include "ops/ops.h"

namespace tessera::bench {
namespace {

using Two = Tensor (*)(const Tensor&, const Tensor&);

void add_pointwise(Subjects& s) {
  for (const auto& [name, f] : unary_functions()) s.add({name}, kRows, 0, f);
  s.add({"gelu"}, kRows, 0, [](const Tensor& x) { return gelu(x); });
  s.add({"gelu", "tanh"}, kRows, 0, [](const Tensor& x) { return gelu(x, GeluKind::Tanh); });
  s.add({"leaky_relu"}, kRows, 0, [](const Tensor& x) { return leaky_relu(x, 0.01); });
  s.add({"elu"}, kRows, 0, [](const Tensor& x) { return elu(x, 1.0); });
  s.add({"clamp"}, kRows, 0, [](const Tensor& x) { return clamp(x, 0.2, 0.8); });
  s.add({"pow_scalar"}, kRows, 0, [](const Tensor& x) { return pow(x, 1.5); });
  for (const auto& [name, f] : std::initializer_list<std::pair<const char*, Two>>{
           {"sub", [](const Tensor&a, const Tensor&b) { return sub(a, b); }},
           {"mul", mul},
           {"div", div},
           {"maximum", maximum},
           {"pow", [](const Tensor&a, const Tensor&b) { return pow(a, b); }},
           {"minimum", minimum}})
    s.add({name}, kRows, 0, [f = f](const Tensor& x) { return f(x, x); });
  for (const auto& [name, f] : std::initializer_list<std::pair<const char*, Two>>{
           {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}})
    s.add({name}, kRows, 0, [f = f](const Tensor& x) { return f(x, x); });
  s.add({"to"}, kRows, 0, [](const Tensor& x) { return to(x, DType::F64); });
  s.add({"add"}, kRows, 0, [](const Tensor& x) { return x + x; });
  s.add({"add", "broadcast"}, kRows, 0, [b = s.filled({8})](const Tensor& x) { return x + b; });
  s.add({"where"}, kRows, 0, [m = s.mask({8})](const Tensor& x) { return where(m, x, x); });
  s.add({"masked_fill"}, kRows, 0, [m = s.mask({8})](const Tensor& x) { return masked_fill(x, m, 0.5); });
}

void add_random(Subjects& s) {
  s.add_drawn({"dropout"}, [](const Tensor& x, Generator& g) { return dropout(x, 0.3, g); });
  const auto fills = [&](const char* name, void (*fill)(const Tensor&, double, double, Generator&)) {
    s.add_drawn({name}, [fill](const Tensor& x, Generator& g) {
      fill(x, 0.25, 0.5, g);
      return x;
    });
  };
  fills("uniform_", uniform_);
  fills("normal_", normal_);
  fills("trunc_normal_", trunc_normal_);
  if (s.device() != Device::Cpu) return;  // what is made is the host's
  s.add_drawn({"rand"},
              [](const Tensor& x, Generator& g) { return rand(x.sizes(), g, x.dtype(), x.spec()); });
  s.add_drawn({"randn"},
              [](const Tensor& x, Generator& g) { return randn(x.sizes(), g, x.dtype(), x.spec()); });
}

void add_products(Subjects& s) {
  const Tensor w = s.filled({8, 8});
  const Tensor b = s.filled({8});
  const Tensor c = s.filled({4});
  s.add({"matmul"}, kRows, 0, [=](const Tensor& x) { return matmul(x, w); });
  s.add({"linear"}, kRows, 0, [=](const Tensor& x) { return linear(x, w, b); });
  s.add({"einsum"}, kRows, 0, [=](const Tensor& x) { return einsum("nc,cd->nd", {x, w}); });
  s.add({"conv1d", "1"}, kLine, 2,
        [=, w1 = s.filled({4, 4, 1})](const Tensor& x) { return conv1d(x, w1, c); });
  s.add({"conv2d", "1x1"}, kMap, 2,
        [=, w2 = s.filled({4, 4, 1, 1})](const Tensor& x) { return conv2d(x, w2, c); });
  s.add({"conv3d", "1x1x1"}, kVolume, 2,
        [=, w3 = s.filled({4, 4, 1, 1, 1})](const Tensor& x) { return conv3d(x, w3, c); });
  // A batch that is cut: no halo is asked for.
  s.add({"conv2d", "3x3"}, kMap, 0,
        [=, w2 = s.filled({4, 4, 3, 3})](const Tensor& x) { return conv2d(x, w2, c, {.padding = {1}}); });
  const ConvTransposeOptions up{.stride = {2}};
  s.add({"conv_transpose1d", "2"}, kLine, 2,
        [=, w1 = s.filled({4, 4, 2})](const Tensor& x) { return conv_transpose1d(x, w1, c, up); });
  s.add({"conv_transpose2d", "2x2"}, kMap, 2,
        [=, w2 = s.filled({4, 4, 2, 2})](const Tensor& x) { return conv_transpose2d(x, w2, c, up); });
  s.add({"conv_transpose3d", "2x2x2"}, kVolume, 2,
        [=, w3 = s.filled({4, 4, 2, 2, 2})](const Tensor& x) { return conv_transpose3d(x, w3, c, up); });
  s.add({"scaled_dot_product_attention"}, {1, 2, 4, 8}, 0,
        [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); });
}

void add_reductions(Subjects& s) {
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&, const Dims&, bool)>>{
           {"sum", [](const Tensor&x, const Dims&d, bool k) { return sum(x, d, k); }},
           {"mean", [](const Tensor&x, const Dims&d, bool k) { return mean(x, d, k); }},
           {"amax", amax},
           {"amin", amin},
           {"logsumexp", logsumexp},
           {"prod", [](const Tensor&x, const Dims&d, bool k) { return prod(x, d, k); }},
           {"any", any},
           {"all", all}})
    s.add({name}, kRows, 0, [f = f](const Tensor& x) { return f(x, {1}, false); });
  s.add({"var"}, kRows, 0, [](const Tensor& x) { return var(x, {1}); });
  s.add({"std"}, kRows, 0, [](const Tensor& x) { return std(x, {1}); });
  s.add({"norm"}, kRows, 0, [](const Tensor& x) { return norm(x, 2, {1}); });
  s.add({"count_nonzero"}, kRows, 0, [](const Tensor& x) { return count_nonzero(x, {1}); });
  s.add({"argmax"}, kRows, 0, [](const Tensor& x) { return argmax(x, 1); });
  s.add({"argmin"}, kRows, 0, [](const Tensor& x) { return argmin(x, 1); });
  s.add({"cumsum"}, kRows, 0, [](const Tensor& x) { return cumsum(x, 1); });
  s.add({"softmax"}, kRows, 0, [](const Tensor& x) { return softmax(x, 1); });
  s.add({"log_softmax"}, kRows, 0, [](const Tensor& x) { return log_softmax(x, 1); });
}

void add_norms(Subjects& s) {
  const Tensor w = s.filled({8});
  const Tensor c = s.filled({4});
  s.add({"layer_norm"}, kRows, 0, [=](const Tensor& x) { return layer_norm(x, {8}, w, w); });
  s.add({"add_layer_norm"}, kRows, 0, [=](const Tensor& x) {
    const auto [sum, y] = add_layer_norm(x, x, {8}, {w, w, 1e-5});
    return y;
  });
  s.add({"rms_norm"}, kRows, 0, [=](const Tensor& x) { return rms_norm(x, {8}, w); });
  s.add({"group_norm"}, kMap, 0, [=](const Tensor& x) { return group_norm(x, 2, c, c); });
  s.add({"instance_norm"}, kMap, 0, [=](const Tensor& x) { return instance_norm(x, {}, c, c); });
  s.add({"batch_norm", "training"}, kMap, 1,
        [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {.training = true}); });
  s.add({"batch_norm", "running statistics"}, kMap, 0, [=](const Tensor& x) {
    return batch_norm(x, {c, c}, c, c);
  });
}

void add_losses(Subjects& s) {
  constexpr Reduction kSum = Reduction::Sum;
  s.add({"mse_loss"}, kRows, 0, [](const Tensor& x) { return mse_loss(x, x, kSum); });
  s.add({"l1_loss"}, kRows, 0, [](const Tensor& x) { return l1_loss(x, x, kSum); });
  s.add({"smooth_l1_loss"}, kRows, 0, [](const Tensor& x) { return smooth_l1_loss(x, x, kSum); });
  s.add({"huber_loss"}, kRows, 0, [](const Tensor& x) { return huber_loss(x, x, kSum); });
  s.add({"binary_cross_entropy"}, kRows, 0,
        [](const Tensor& x) { return binary_cross_entropy(x, x, {}, kSum); });
  s.add({"binary_cross_entropy_with_logits"}, kRows, 0,
        [](const Tensor& x) { return binary_cross_entropy_with_logits(x, x, {}, kSum); });
  s.add({"kl_div"}, kRows, 0, [](const Tensor& x) { return kl_div(x, x, kSum); });
  const auto of_rows = [](Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const ClassLossOptions&)) {
    return [f](const Tensor& x, const Tensor& target) { return f(x, target, {}, {.reduction = kSum}); };
  };
  s.add_numbered({"cross_entropy"}, {4}, of_rows(cross_entropy));
  s.add_numbered({"nll_loss"}, {4}, of_rows(nll_loss));
}

void add_windows(Subjects& s) {
  s.add({"avg_pool1d", "2"}, kLine, 2, [](const Tensor& x) { return avg_pool1d(x, {2}); });
  s.add({"avg_pool2d", "2x2"}, kMap, 2, [](const Tensor& x) { return avg_pool2d(x, {2}); });
  s.add({"avg_pool3d", "2x2x2"}, kVolume, 2, [](const Tensor& x) { return avg_pool3d(x, {2}); });
  s.add({"max_pool1d", "2"}, kLine, 2, [](const Tensor& x) { return max_pool1d(x, {2}); });
  s.add({"max_pool2d", "2x2"}, kMap, 2, [](const Tensor& x) { return max_pool2d(x, {2}); });
  s.add({"max_pool3d", "2x2x2"}, kVolume, 2, [](const Tensor& x) { return max_pool3d(x, {2}); });
  s.add({"adaptive_avg_pool1d"}, kLine, 0, [](const Tensor& x) { return adaptive_avg_pool1d(x, {2}); });
  s.add({"adaptive_avg_pool2d"}, kMap, 0, [](const Tensor& x) { return adaptive_avg_pool2d(x, {2, 2}); });
  s.add({"adaptive_avg_pool3d"}, kVolume, 0, [](const Tensor& x) {
    return adaptive_avg_pool3d(x, {1, 2, 1});
  });
  for (const auto& [name, mode] : std::initializer_list<std::pair<const char*, InterpolateMode>>{
           {"nearest", InterpolateMode::Nearest}, {"bilinear", InterpolateMode::Bilinear}}) {
    InterpolateOptions o;
    o.size = {8, 8};
    o.mode = mode;
    s.add({"interpolate", name}, kMap, 0, [o](const Tensor& x) { return interpolate(x, o); });
  }
}

void add_shapes(Subjects& s) {
  s.add({"reshape"}, {1, 4, 8}, 1, [](const Tensor& x) { return reshape(x, {-1, 8}); });
  s.add({"flatten"}, {1, 4, 8}, 1, [](const Tensor& x) { return flatten(x, 1); });
  s.add({"unflatten"}, kRows, 0, [](const Tensor& x) { return unflatten(x, 1, {2, 4}); });
  s.add({"permute"}, kRows, 0, [](const Tensor& x) { return permute(x, {1, 0}); });
  s.add({"transpose"}, kRows, 0, [](const Tensor& x) { return transpose(x, 0, 1); });
  s.add({"movedim"}, kRows, 0, [](const Tensor& x) { return movedim(x, {0}, {1}); });
  s.add({"unsqueeze"}, kRows, 0, [](const Tensor& x) { return unsqueeze(x, 0); });
  s.add({"squeeze"}, {4, 1, 8}, 0, [](const Tensor& x) { return squeeze(x, 1); });
  s.add({"expand"}, {4, 1}, 0, [](const Tensor& x) { return expand(x, {-1, 8}); });
  s.add({"broadcast_to"}, kRows, 0, [](const Tensor& x) { return broadcast_to(x, {2, -1, 8}); });
  s.add({"slice"}, kRows, 0, [](const Tensor& x) { return slice(x, 1, 2, 6); });
  s.add({"narrow"}, kRows, 0, [](const Tensor& x) { return narrow(x, 1, 2, 4); });
  s.add({"select"}, kRows, 0, [](const Tensor& x) { return select(x, 1, 3); });
  s.add({"slice_scatter"}, kRows, 0, [](const Tensor& x) {
     return slice_scatter(x, slice(x, 1, 0, 4), 1, 2, 6);
   }).parts = 2;
  s.add({"select_scatter"}, kRows, 0, [](const Tensor& x) {
     return select_scatter(x, select(x, 1, 0), 1, 3);
   }).parts = 2;
  s.add({"split", "in two"}, kRows, 0, [](const Tensor& x) { return split(x, {2, 6}, 1)[0]; });
  s.add({"chunk", "in two"}, kRows, 0, [](const Tensor& x) { return chunk(x, 2, 1)[0]; });
  s.add({"unbind", "of two"}, {4, 2}, 0, [](const Tensor& x) { return unbind(x, 1)[0]; });
  s.add({"diagonal"}, {2, 4, 4}, 0, [](const Tensor& x) { return diagonal(x, 0, 1, 2); });
  s.add({"cat"}, kRows, 0, [](const Tensor& x) { return cat({x, x}, 1); });
  s.add({"stack"}, kRows, 0, [](const Tensor& x) { return stack({x, x}, 1); });
  s.add({"flip"}, kRows, 0, [](const Tensor& x) { return flip(x, {1}); });
  s.add({"roll"}, kRows, 0, [](const Tensor& x) { return roll(x, {1}, {1}); });
  s.add({"repeat"}, kRows, 0, [](const Tensor& x) { return repeat(x, {1, 2}); });
  s.add({"tile"}, kRows, 0, [](const Tensor& x) { return tile(x, {2}); });
  s.add({"repeat_interleave"}, kRows, 0, [](const Tensor& x) { return repeat_interleave(x, 2, 1); });
  s.add({"contiguous", "as it is"}, kRows, 0, [](const Tensor& x) { return contiguous(x); });
  s.add({"contiguous", "transposed"}, kRows, 0,
        [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); });
  s.add({"pad"}, kRows, 0, [](const Tensor& x) { return pad(x, {1, 1}); });
}

void add_indexing(Subjects& s) {
  s.add({"index_select"}, kRows, 0,
        [rows = s.numbers({3}, 8)](const Tensor& x) { return index_select(x, 1, rows); });
  s.add({"embedding"}, kRows, 1,
        [words = s.numbers({4}, 4)](const Tensor& x) { return embedding(x, words); });
  const auto numbered = [&](const char* op, auto f) { s.add_numbered({op}, kRows, f); };
  numbered("gather", [](const Tensor& x, const Tensor& n) { return gather(x, 1, n); });
  numbered("scatter_add", [](const Tensor& x, const Tensor& n) { return scatter_add(x, 1, n, x); });
  numbered("take_along_dim", [](const Tensor& x, const Tensor& n) { return take_along_dim(x, n, 1); });
  numbered("one_hot", [](const Tensor&, const Tensor& n) { return one_hot(n, 8); });
  s.add({"sort"}, kRows, 0, [](const Tensor& x) { return sort(x, 1).first; });
  s.add({"argsort"}, kRows, 0, [](const Tensor& x) { return argsort(x, 1); });
  s.add({"median"}, kRows, 0, [](const Tensor& x) { return median(x, 1).first; });
  s.add({"topk"}, kRows, 0, [](const Tensor& x) { return topk(x, 2).first; });
  const auto search = [&](const char* op, const char* how, auto f) {
    s.add_asking({op, how}, {16, 2}, f, true);
  };
  search("knn", "16 points", [](const Tensor& x) { return knn(x, x, 2).distances; });
  search("radius_search", "16 points", [](const Tensor& x) { return radius_search(x, x, 0.2, 2).distances; });
  search("radius_search", "16 points, lists",
         [](const Tensor& x) { return radius_search(x, x, 0.2).distances; });
}

}  // namespace

Tensor Subjects::filled(const Dims& sizes, DType dtype) const {
  Generator generator(7);
  return to(to(rand(sizes, generator), dtype), device_);
}
Tensor Subjects::numbers(const Dims& sizes, std::int64_t below) const {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * 7 + 3) % static_cast<std::size_t>(below));
  return Tensor(Array::from(values, sizes, DType::I64).to(device_));
}
Tensor Subjects::mask(const Dims& sizes) const {
  return Tensor(Array::full(sizes, 1.0, DType::Bool).to(device_));
}

std::vector<Subject> overhead_subjects(Device device) {
  Subjects s(device);
  add_pointwise(s);
  add_random(s);
  add_products(s);
  add_reductions(s);
  add_norms(s);
  add_losses(s);
  add_windows(s);
  add_shapes(s);
  add_indexing(s);
  add_row_options(s);
  add_map_options(s);
  return s.take();
}

}  // namespace tessera::bench
