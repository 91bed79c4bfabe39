#include "bench/kernel_cases.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ops/cpu/conv.h"
#include "ops/ops.h"
#include "runtime/copy.h"

namespace tessera::bench {
namespace {

using Json = nlohmann::ordered_json;

double product(const Dims& d) { return static_cast<double>(numel_of(d)); }
std::vector<std::int64_t> list_of(const Dims& d) { return {d.begin(), d.end()}; }

Tensor filled(const Dims& sizes) {
  static Generator generator(11);
  return randn(sizes, generator).set_requires_grad(true);
}

Tensor channels_last(const Dims& sizes) {
  const Array plain = filled(sizes).local();
  const Array x = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), DType::F32, Device::Cpu);
  copy_strided(x, plain);
  return Tensor(x).set_requires_grad(true);
}

struct ConvShape {
  std::int64_t in, out, kernel, stride, groups;
  Dims spatial;
  bool hole;  // one of those that usual libraries do badly
};

std::string times(std::int64_t n, int dims) {
  std::string text = std::to_string(n);
  for (int d = 1; d < dims; ++d) text += fmt::format("x{}", n);
  return text;
}

// Followed by ReLU or GELU: in the same call, or (`apart`) as an operation of its own.
struct Following {
  Activation activation = Activation::None;
  bool apart = false;
  std::string name() const { return activation == Activation::Relu ? "relu" : "gelu"; }
  Tensor alone(const Tensor& x) const { return activation == Activation::Relu ? relu(x) : gelu(x); }
};

KernelCase conv_case(const ConvShape& s, const Following& following = {}) {
  const int dims = s.spatial.size();
  Dims x_sizes{1, s.in};
  for (const std::int64_t n : s.spatial) x_sizes.push_back(n);
  Dims w_sizes{s.out, s.in / s.groups};
  for (int d = 0; d < dims; ++d) w_sizes.push_back(s.kernel);
  ConvOptions options;
  options.stride = {s.stride};
  options.padding = {s.kernel / 2};
  options.groups = s.groups;
  const Tensor x = channels_last(x_sizes);
  const Tensor w = filled(w_sizes);
  const Tensor b = filled({s.out});
  const double outputs = product(conv(x, w, b, options).sizes());
  const double flops = 2.0 * outputs * product(w_sizes) / static_cast<double>(s.out);
  Json recipe{{"op", "conv"},       {"x", list_of(x_sizes)},   {"w", list_of(w_sizes)},
              {"stride", s.stride}, {"padding", s.kernel / 2}, {"groups", s.groups}};
  KernelCase c{s.hole ? "conv hole" : "conv",
               fmt::format("conv {} to {}, {}{}{}", s.in, s.out, times(s.kernel, dims),
                           s.stride > 1 ? fmt::format(", stride {}", s.stride) : "",
                           s.groups > 1 ? fmt::format(", {} groups", s.groups) : ""),
               x_sizes.str(),
               recipe.dump(),
               {x, w, b},
               [=] { return conv(x, w, b, options); },
               {flops, 2 * flops}};
  if (following.activation == Activation::None) return c;
  c.family = "fused";
  c.name += (following.apart ? ", then " : " + ") + following.name();
  recipe["op"] = "conv_" + following.name();
  c.recipe = recipe.dump();
  if (following.apart) {
    c.run = [=] { return following.alone(conv(x, w, b, options)); };
  } else {
    options.activation = following.activation;
    c.run = [=] { return conv(x, w, b, options); };
  }
  return c;
}

KernelCase conv_transpose_case(std::int64_t in, std::int64_t out, const Dims& spatial) {
  Dims x_sizes{1, in};
  Dims w_sizes{in, out};
  for (const std::int64_t n : spatial) {
    x_sizes.push_back(n);
    w_sizes.push_back(2);
  }
  ConvTransposeOptions options;
  options.stride = {2};
  const Tensor x = channels_last(x_sizes);
  const Tensor w = filled(w_sizes);
  const Tensor b = filled({out});
  const auto call = spatial.size() == 2 ? &conv_transpose2d : &conv_transpose3d;
  const double flops = 2.0 * product(x_sizes) * product(w_sizes) / static_cast<double>(in);
  const Json recipe{
      {"op", "conv_transpose"}, {"x", list_of(x_sizes)}, {"w", list_of(w_sizes)}, {"stride", 2}};
  return {"conv hole",
          fmt::format("conv_transpose {} to {}, {}, stride 2", in, out, times(2, spatial.size())),
          x_sizes.str(),
          recipe.dump(),
          {x, w, b},
          [=] { return call(x, w, b, options); },
          {flops, 2 * flops}};
}

KernelCase linear_case(std::int64_t tokens, std::int64_t in, std::int64_t out, bool with_gelu = false) {
  const Tensor x = filled({tokens, in});
  const Tensor w = filled({out, in});
  const Tensor b = filled({out});
  const double flops = 2.0 * product({tokens, in, out});
  const auto activation = with_gelu ? Activation::Gelu : Activation::None;
  const Json recipe{{"op", with_gelu ? "linear_gelu" : "linear"}, {"x", {tokens, in}}, {"w", {out, in}}};
  return {with_gelu ? "fused" : "linear",
          fmt::format("linear {} to {}{}", in, out, with_gelu ? " + gelu" : ""),
          x.sizes().str(),
          recipe.dump(),
          {x, w, b},
          [=] { return linear(x, w, b, activation); },
          {flops, 2 * flops}};
}

KernelCase attention_case(std::int64_t heads, std::int64_t tokens) {
  constexpr std::int64_t kHeadSize = 64;
  const Dims sizes{1, heads, tokens, kHeadSize};
  const Tensor q = filled(sizes);
  const Tensor k = filled(sizes);
  const Tensor v = filled(sizes);
  const double flops = 4.0 * product({heads, tokens, tokens, kHeadSize});
  const Json recipe{{"op", "attention"}, {"x", list_of(sizes)}};
  return {"attention",         "attention", sizes.str(),
          recipe.dump(),       {q, k, v},   [=] { return scaled_dot_product_attention(q, k, v); },
          {flops, 2.5 * flops}};
}

// Memory-bound: forward reads x and writes y, backward reads two of their size and writes one.
KernelCase moved(const std::string& family, const std::string& name, const Tensor& x, const Json& recipe,
                 std::function<Tensor()> run) {
  const double bytes = 4.0 * product(x.sizes());
  return {family, name, x.sizes().str(), recipe.dump(), {x}, std::move(run), {2 * bytes, 3 * bytes}, true};
}

KernelCase layer_norm_case(std::int64_t rows, std::int64_t cols) {
  const Tensor x = filled({rows, cols});
  const Tensor w = filled({cols});
  const Tensor b = filled({cols});
  KernelCase c = moved("norm", "layer_norm", x, {{"op", "layer_norm"}, {"x", {rows, cols}}},
                       [=] { return layer_norm(x, {cols}, w, b); });
  c.inputs = {x, w, b};
  return c;
}

enum class Order : std::uint8_t { ChannelsLast, Contiguous };
const char* named(Order order) { return order == Order::Contiguous ? ", contiguous" : ""; }
Tensor map_in(Order order, const Dims& sizes) {
  return order == Order::Contiguous ? filled(sizes) : channels_last(sizes);
}

KernelCase group_norm_case(std::int64_t groups, const Dims& sizes, bool with_gelu = false,
                           Order order = Order::ChannelsLast) {
  const Tensor x = map_in(order, sizes);
  const Tensor w = filled({sizes[1]});
  const Tensor b = filled({sizes[1]});
  GroupNormOptions options;
  if (with_gelu) options.activation = NormActivation::Gelu;
  KernelCase c =
      moved(with_gelu ? "fused" : "norm",
            fmt::format("group_norm, {} groups{}{}", groups, with_gelu ? " + gelu" : "", named(order)), x,
            {{"op", with_gelu ? "group_norm_gelu" : "group_norm"},
             {"x", list_of(sizes)},
             {"groups", groups},
             {"order", named(order)}},
            [=] { return group_norm(x, groups, w, b, options); });
  c.inputs = {x, w, b};
  return c;
}

KernelCase batch_norm_case(const Dims& sizes, Order order = Order::ChannelsLast) {
  const Tensor x = map_in(order, sizes);
  const Tensor w = filled({sizes[1]});
  const Tensor b = filled({sizes[1]});
  KernelCase c = moved("norm", fmt::format("batch_norm{}", named(order)), x,
                       {{"op", "batch_norm"}, {"x", list_of(sizes)}, {"order", named(order)}},
                       [=] { return batch_norm(x, {}, w, b, {.training = true}); });
  c.inputs = {x, w, b};
  return c;
}

// Both results are used: x + residual goes on, its norm goes into a branch.
KernelCase add_layer_norm_case(std::int64_t rows, std::int64_t cols) {
  const Tensor x = filled({rows, cols});
  const Tensor residual = filled({rows, cols});
  const Tensor w = filled({cols});
  const Tensor b = filled({cols});
  const Json recipe{{"op", "add_layer_norm"}, {"x", {rows, cols}}};
  const double bytes = 4.0 * product(x.sizes());
  const auto run = [=] {
    const auto [sum, norm] = add_layer_norm(x, residual, {cols}, {w, b});
    return Tensors{sum, norm};
  };
  return {"fused",
          "add + layer_norm",
          x.sizes().str(),
          recipe.dump(),
          {x, residual, w, b},
          run,
          {4 * bytes, 4 * bytes},
          true};
}

// Of maps, in the order of memory that is asked for; what moves is x, and what comes out.
struct MapOp {
  const char* name;
  double outputs;  // per input
  std::function<Tensor(const Tensor&)> run;
};
std::vector<MapOp> map_ops() {
  const auto twice = [](InterpolateMode mode) {
    return [mode](const Tensor& x) { return interpolate(x, {.scale_factor = {2, 2}, .mode = mode}); };
  };
  return {{"avg_pool2d", 0.25, [](const Tensor& x) { return avg_pool2d(x, {2}); }},
          {"max_pool2d", 0.25, [](const Tensor& x) { return max_pool2d(x, {2}); }},
          {"interpolate_nearest", 4, twice(InterpolateMode::Nearest)},
          {"interpolate_bilinear", 4, twice(InterpolateMode::Bilinear)},
          {"cat", 2,
           [](const Tensor& x) {
             return cat({x, x}, 1);
           }},
          {"mean", 0,
           [](const Tensor& x) {
             return mean(x, {2, 3});
           }},
          {"instance_norm", 1, [](const Tensor& x) { return instance_norm(x); }}};
}
KernelCase map_case(const MapOp& op, const Dims& sizes, Order order) {
  const Tensor x = map_in(order, sizes);
  KernelCase c = moved("map", fmt::format("{}{}", op.name, named(order)), x,
                       {{"op", op.name}, {"x", list_of(sizes)}, {"order", named(order)}},
                       [=, run = op.run] { return run(x); });
  const double bytes = 4.0 * product(sizes) * (1 + op.outputs);
  c.effort = {bytes, bytes};
  return c;
}

// Functions of one number that take no options; PyTorch's side knows them by name.
struct Function {
  const char* op;
  const char* name;
  Tensor (*run)(const Tensor&);
};
std::vector<Function> functions() {
  return {{"tanh", "tanh", &tanh},
          {"sin", "sin", &sin},
          {"softplus", "softplus", [](const Tensor& x) { return softplus(x); }},
          {"pow_2", "pow 2", [](const Tensor& x) { return pow(x, 2.0); }}};
}
KernelCase function_case(const Function& f, const Dims& sizes) {
  const Tensor x = filled(sizes);
  return moved("pointwise", f.name, x, {{"op", f.op}, {"x", list_of(sizes)}},
               [=, run = f.run] { return run(x); });
}

KernelCase gelu_case(const Dims& sizes, bool tanh) {
  const Tensor x = filled(sizes);
  const auto kind = tanh ? GeluKind::Tanh : GeluKind::None;
  return moved("pointwise", tanh ? "gelu, tanh" : "gelu", x,
               {{"op", tanh ? "gelu_tanh" : "gelu"}, {"x", list_of(sizes)}}, [=] { return gelu(x, kind); });
}

KernelCase softmax_case(std::int64_t rows, std::int64_t cols) {
  const Tensor x = filled({rows, cols});
  return moved("norm", "softmax", x, {{"op", "softmax"}, {"x", {rows, cols}}},
               [=] { return softmax(x, -1); });
}

KernelCase add_case(const Dims& sizes) {
  const Tensor x = filled(sizes);
  const Tensor y = filled(sizes);
  KernelCase c =
      moved("pointwise", "add", x, {{"op", "add"}, {"x", list_of(sizes)}}, [=] { return add(x, y); });
  c.effort = {12.0 * product(sizes), 0};
  return c;
}

std::vector<ConvShape> conv_shapes() {
  const Dims plane{128, 128};
  const Dims volume{48, 48, 48};
  return {{32, 32, 3, 1, 1, plane, false},     {64, 64, 3, 1, 1, plane, false},
          {128, 128, 3, 1, 1, plane, false},   {8, 64, 3, 1, 1, plane, false},
          {3, 64, 7, 2, 1, {256, 256}, false}, {32, 32, 7, 1, 1, plane, false},
          {64, 64, 1, 1, 1, plane, false},     {128, 128, 1, 1, 1, plane, false},
          {64, 128, 3, 2, 1, plane, false},    {16, 16, 3, 1, 1, volume, false},
          {32, 32, 3, 1, 1, volume, false},    {64, 64, 3, 1, 64, plane, true},
          {64, 64, 7, 1, 64, plane, true},     {8, 16, 3, 1, 1, volume, true}};
}

}  // namespace

std::vector<KernelCase> kernel_cases(bool quick) {
  std::vector<KernelCase> all;
  if (quick) {
    all.push_back(conv_case({8, 8, 3, 1, 1, {16, 16}, false}));
    all.push_back(conv_case({8, 8, 3, 1, 1, {16, 16}, false}, {Activation::Gelu}));
    all.push_back(conv_transpose_case(8, 4, {8, 8}));
    all.push_back(linear_case(64, 32, 32));
    all.push_back(linear_case(64, 32, 32, true));
    all.push_back(add_layer_norm_case(64, 32));
    all.push_back(layer_norm_case(64, 32));
    all.push_back(group_norm_case(2, {1, 8, 16, 16}));
    all.push_back(group_norm_case(2, {1, 8, 16, 16}, true));
    all.push_back(batch_norm_case({1, 8, 16, 16}));
    all.push_back(gelu_case({64, 32}, false));
    all.push_back(softmax_case(64, 32));
    all.push_back(add_case({64, 32}));
    all.push_back(attention_case(2, 64));
    for (const Function& f : functions()) all.push_back(function_case(f, {64, 32}));
    for (const MapOp& op : map_ops()) all.push_back(map_case(op, {1, 8, 16, 16}, Order::ChannelsLast));
    return all;
  }
  for (const ConvShape& s : conv_shapes()) all.push_back(conv_case(s));
  all.push_back(conv_transpose_case(64, 32, {128, 128}));
  all.push_back(conv_transpose_case(32, 16, {48, 48, 48}));
  for (const std::int64_t tokens : {1024, 4096})
    for (const auto& [in, out] : {std::pair{192, 768}, {768, 192}, {512, 2048}})
      all.push_back(linear_case(tokens, in, out));
  all.push_back(layer_norm_case(4096, 192));
  all.push_back(layer_norm_case(1024, 768));
  all.push_back(group_norm_case(8, {1, 64, 128, 128}));
  all.push_back(group_norm_case(8, {1, 32, 512, 512}));
  all.push_back(group_norm_case(8, {1, 64, 128, 128}, true));
  all.push_back(group_norm_case(8, {1, 32, 512, 512}, true));
  all.push_back(batch_norm_case({1, 64, 128, 128}));
  all.push_back(group_norm_case(8, {1, 64, 128, 128}, false, Order::Contiguous));
  all.push_back(batch_norm_case({1, 64, 128, 128}, Order::Contiguous));
  all.push_back(linear_case(1024, 192, 768, true));
  all.push_back(linear_case(4096, 512, 2048, true));
  for (const Activation activation : {Activation::Relu, Activation::Gelu})
    for (const bool apart : {false, true})
      for (const ConvShape& s :
           {ConvShape{32, 32, 3, 1, 1, {512, 512}, false}, {64, 128, 1, 1, 1, {128, 128}, false}})
        all.push_back(conv_case(s, {activation, apart}));
  all.push_back(add_layer_norm_case(1024, 192));
  all.push_back(add_layer_norm_case(4096, 192));
  all.push_back(softmax_case(1024, 1024));
  for (const std::int64_t rows : {1024, 4096})
    for (const bool tanh : {false, true}) all.push_back(gelu_case({rows, 768}, tanh));
  for (const Function& f : functions()) all.push_back(function_case(f, {4096, 768}));
  all.push_back(add_case({1024, 768}));
  all.push_back(conv_case({32, 4, 1, 1, 1, {512, 512}, false}));
  for (const MapOp& op : map_ops())
    for (const Order order : {Order::Contiguous, Order::ChannelsLast})
      all.push_back(map_case(op, {1, 32, 256, 256}, order));
  for (const std::int64_t heads : {3, 8})
    for (const std::int64_t tokens : {256, 1024, 4096}) all.push_back(attention_case(heads, tokens));
  return all;
}

}  // namespace tessera::bench
