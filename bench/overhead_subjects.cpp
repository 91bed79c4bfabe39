#include "bench/overhead_subjects.h"

#include "ops/ops.h"

namespace tessera::bench {
namespace {

using One = Tensor (*)(const Tensor&);

// The other operands, on one device.
class Operands {
 public:
  explicit Operands(Device device) : device_(device) {}
  Tensor filled(const Dims& sizes) const {
    Generator generator(7);
    return to(randn(sizes, generator), device_);
  }
  Tensor numbers(const Dims& sizes, std::int64_t below) const {
    std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>((i * 7 + 3) % static_cast<std::size_t>(below));
    return Tensor(Array::from(values, sizes, DType::I64).to(device_));
  }

 private:
  Device device_;
};

const Dims kRows{4, 8};
const Dims kMap{1, 4, 4, 4};

void add_pointwise(std::vector<Subject>& list, const Operands& with) {
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, One>>{{"relu", relu},
                                                          {"gelu", [](const Tensor& x) { return gelu(x); }},
                                                          {"exp", exp},
                                                          {"sqrt", sqrt},
                                                          {"tanh", tanh}})
    list.push_back({name, kRows, 0, f});
  list.push_back({"clamp", kRows, 0, [](const Tensor& x) { return clamp(x, -1, 1); }});
  list.push_back({"add", kRows, 0, [](const Tensor& x) { return x + x; }});
  list.push_back({"mul", kRows, 0, [](const Tensor& x) { return x * x; }});
  list.push_back({"add, broadcast", kRows, 0, [b = with.filled({8})](const Tensor& x) { return x + b; }});
  list.push_back({"where", kRows, 0, [](const Tensor& x) { return where(gt(x, x), x, x); }});
}

void add_products(std::vector<Subject>& list, const Operands& with) {
  const Tensor w = with.filled({8, 8});
  const Tensor b = with.filled({8});
  const Tensor kernel = with.filled({4, 4, 1, 1});
  const Tensor up = with.filled({4, 4, 2, 2});
  const Tensor kernel_bias = with.filled({4});
  list.push_back({"matmul", kRows, 0, [=](const Tensor& x) { return matmul(x, w); }});
  list.push_back({"linear", kRows, 0, [=](const Tensor& x) { return linear(x, w, b); }});
  list.push_back({"einsum", kRows, 0, [=](const Tensor& x) { return einsum("nc,cd->nd", {x, w}); }});
  list.push_back({"conv 1x1", kMap, 2, [=](const Tensor& x) { return conv2d(x, kernel, kernel_bias); }});
  list.push_back({"conv_transpose 2x2", kMap, 2,
                  [=](const Tensor& x) { return conv_transpose2d(x, up, kernel_bias, {.stride = {2}}); }});
  list.push_back(
      {"attention", {1, 2, 4, 8}, 0, [](const Tensor& x) { return scaled_dot_product_attention(x, x, x); }});
}

void add_statistics(std::vector<Subject>& list, const Operands& with) {
  const Tensor w = with.filled({8});
  const Tensor c = with.filled({4});
  list.push_back({"sum", kRows, 0, [](const Tensor& x) { return sum(x, {1}); }});
  list.push_back({"mean", kRows, 0, [](const Tensor& x) { return mean(x, {1}); }});
  list.push_back({"amax", kRows, 0, [](const Tensor& x) { return amax(x, {1}); }});
  list.push_back({"var", kRows, 0, [](const Tensor& x) { return var(x, {1}); }});
  list.push_back({"std", kRows, 0, [](const Tensor& x) { return std(x, {1}); }});
  list.push_back({"vector_norm", kRows, 0, [](const Tensor& x) { return vector_norm(x, 2, {1}); }});
  list.push_back({"logsumexp", kRows, 0, [](const Tensor& x) { return logsumexp(x, {1}); }});
  list.push_back({"argmax", kRows, 0, [](const Tensor& x) { return argmax(x, 1); }});
  list.push_back({"cumsum", kRows, 0, [](const Tensor& x) { return cumsum(x, 1); }});
  list.push_back({"softmax", kRows, 0, [](const Tensor& x) { return softmax(x, 1); }});
  list.push_back({"layer_norm", kRows, 0, [=](const Tensor& x) { return layer_norm(x, {8}, w, w); }});
  list.push_back({"rms_norm", kRows, 0, [=](const Tensor& x) { return rms_norm(x, {8}, w); }});
  list.push_back({"group_norm", kMap, 0, [=](const Tensor& x) { return group_norm(x, 2, c, c); }});
  list.push_back({"mse_loss", kRows, 0, [](const Tensor& x) { return mse_loss(x, x, Reduction::Sum); }});
}

void add_windows(std::vector<Subject>& list) {
  list.push_back({"avg_pool 2x2", kMap, 2, [](const Tensor& x) { return avg_pool2d(x, {2}); }});
  list.push_back({"max_pool 2x2", kMap, 2, [](const Tensor& x) { return max_pool2d(x, {2}); }});
}

void add_shapes(std::vector<Subject>& list, const Operands& with) {
  list.push_back({"reshape", {1, 4, 8}, 1, [](const Tensor& x) { return flatten(x, 1); }});
  list.push_back({"transpose", kRows, 0, [](const Tensor& x) { return transpose(x, 0, 1); }});
  list.push_back({"unsqueeze", kRows, 0, [](const Tensor& x) { return unsqueeze(x, 0); }});
  list.push_back({"expand", {4, 1}, 0, [](const Tensor& x) { return expand(x, {-1, 8}); }});
  list.push_back({"slice", kRows, 0, [](const Tensor& x) { return slice(x, 1, 2, 6); }});
  list.push_back({"cat", kRows, 0, [](const Tensor& x) { return cat({x, x}, 1); }});
  list.push_back({"stack", kRows, 0, [](const Tensor& x) { return stack({x, x}, 1); }});
  list.push_back({"flip", kRows, 0, [](const Tensor& x) { return flip(x, {1}); }});
  list.push_back({"roll", kRows, 0, [](const Tensor& x) { return roll(x, {1}, {1}); }});
  list.push_back({"repeat", kRows, 0, [](const Tensor& x) { return repeat(x, {1, 2}); }});
  list.push_back({"pad", kRows, 0, [](const Tensor& x) { return pad(x, {1, 1}); }});
  const Tensor rows = with.numbers({3}, 8);
  const Tensor words = with.numbers({4}, 4);
  list.push_back({"index_select", kRows, 0, [=](const Tensor& x) { return index_select(x, 1, rows); }});
  list.push_back({"sort", kRows, 0, [](const Tensor& x) { return sort(x, 1).first; }});
  list.push_back({"topk", kRows, 0, [](const Tensor& x) { return topk(x, 2).first; }});
}

}  // namespace

std::vector<Subject> overhead_subjects(Device device) {
  const Operands with(device);
  std::vector<Subject> list;
  add_pointwise(list, with);
  add_products(list, with);
  add_statistics(list, with);
  add_windows(list);
  add_shapes(list, with);
  return list;
}

}  // namespace tessera::bench
