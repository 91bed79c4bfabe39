// Convolutions, products and attention on a device, beside bare calls of cuDNN and cuBLASLt: the same plans,
// their memory ready, timed by events in turns.
#include <fmt/format.h>

#include <cmath>

#include "autograd/node.h"
#include "bench/device.h"
#include "bench/groups.h"
#include "bench/library_calls.h"
#include "ops/cpu/conv_problem.h"
#include "ops/cuda/attention_rule.h"
#include "ops/cuda/conv_rule.h"
#include "ops/cuda/precision.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

using cuda::AttentionGraph;
using cuda::AttentionPass;
using cuda::ConvGraph;
using cuda::ConvKind;

struct Sizes {
  std::int64_t batch, channels, side, tokens, width, heads;
};
Sizes sizes_of(const Settings& settings) {
  if (settings.quick || device_is_emulated()) return {1, 8, 12, 32, 16, 2};
  return {8, 64, 128, 8192, 1024, 16};
}

Tensor filled(const Dims& sizes, DType dtype) {
  Generator generator(11);
  return to(to(randn(sizes, generator), dtype), Device::Cuda);
}
Array channels_last(const Dims& sizes, DType dtype) {
  Array x = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), dtype, Device::Cuda);
  x.copy_(filled(sizes, dtype).local());
  return x;
}

// So many calls that a repeat takes some milliseconds on a large device.
Variant timed(const Settings& settings, std::string name, std::function<void()> f) {
  const int calls = settings.quick || device_is_emulated() ? 1 : 20;
  auto many = [f = std::move(f), calls] {
    for (int i = 0; i < calls; ++i) f();
  };
  return {std::move(name), std::move(many), calls, &spent_on_device};
}

struct Subject {
  std::string name;
  std::string shape;
  DType dtype = DType::F32;
  double flops = 0;
};

void add(const Settings& settings, Report& report, const Subject& s, const std::vector<Variant>& variants) {
  Case c{.group = "device_kernels",
         .name = fmt::format("{}, {}", s.name, name_of(s.dtype)),
         .shape = s.shape,
         .dtype = s.dtype};
  c.timings = interleaved(settings, variants);
  c.work = {s.flops, "GF/s"};
  report.add(c);
}

// What cuDNN is asked for by one convolution of arrays that lie so.
std::function<void()> bare_conv(ConvKind kind, const Array& x, const Array& w, const Array& y) {
  const cpu::ConvGeometry geometry{{1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const cpu::ConvProblem p = cpu::conv_problem("bench", x, w, y, geometry);
  const ConvGraph graph = cuda::conv_form(kind, p, {}, cuda::tf32_allowed()).graph;
  return bare_call(graph);
}

void conv_cases(const Settings& settings, Report& report, DType dtype) {
  const Sizes s = sizes_of(settings);
  const Dims map{s.batch, s.channels, s.side, s.side};
  const Array x = channels_last(map, dtype);
  const Array w = channels_last({s.channels, s.channels, 3, 3}, dtype);
  const Tensor tx = Tensor(x).set_requires_grad(true);
  const Tensor tw = Tensor(w).set_requires_grad(true);
  const ConvOptions options{.padding = {1}};
  const Tensor y = conv(tx, tw, {}, options);
  const Array dy = channels_last(map, dtype);
  Subject subject{"conv 3x3, forward", map.str(), dtype,
                  18.0 * static_cast<double>(numel_of(map) * s.channels)};
  add(settings, report, subject,
      {timed(settings, "bare cuDNN", bare_conv(ConvKind::Forward, x, w, channels_last(map, dtype))),
       timed(settings, "conv", [&] {
         const NoGrad guard;
         conv(tx, tw, {}, options);
       })});
  const auto data = bare_conv(ConvKind::DataGradient, channels_last(map, dtype), w, dy);
  const auto weight = bare_conv(ConvKind::WeightGradient, x, channels_last(w.sizes(), dtype), dy);
  subject.name = "conv 3x3, backward";
  subject.flops *= 2;
  add(settings, report, subject,
      {timed(settings, "bare cuDNN",
             [&] {
               data();
               weight();
             }),
       timed(settings, "conv", [&] {
         grad({y}, {tx, tw}, {Tensor(dy)}, {.retain_graph = true});
       })});
}

// d [n, m] = q [n, k] p [m, k]^T, a batch of them, all by rows: by columns the transposes.
struct Product {
  std::int64_t m, n, k, batch;
  bool second_transposed;  // p is [m, k]; else [k, m]
};
std::function<void()> bare_product(const Product& p, DType dtype, bool bias) {
  cuda::BlasShape shape;
  shape.dtype = dtype;
  shape.m = p.m;
  shape.n = p.n;
  shape.k = p.k;
  shape.batch = p.batch;
  shape.d = {p.m, p.m * p.n, 256, false};
  shape.p = {p.second_transposed ? p.k : p.m, p.m * p.k, 256, p.second_transposed};
  shape.q = {p.k, p.n * p.k, 256, false};
  shape.bias = bias;
  shape.tf32 = cuda::tf32_allowed();
  return bare_call(shape);
}

void product_case(const Settings& settings, Report& report, DType dtype) {
  const Sizes s = sizes_of(settings);
  const std::int64_t out = 4 * s.width;
  const Tensor x = filled({s.tokens, s.width}, dtype);
  const Tensor w = filled({out, s.width}, dtype);
  const Tensor b = filled({out}, dtype);
  const Subject subject{fmt::format("linear to {}", out), x.sizes().str(), dtype,
                        2.0 * static_cast<double>(s.tokens * s.width * out)};
  add(settings, report, subject,
      {timed(settings, "bare cuBLASLt", bare_product({out, s.tokens, s.width, 1, true}, dtype, true)),
       timed(settings, "linear", [&] {
         const NoGrad guard;
         linear(x, w, b);
       })});
}

// A layer of a transformer's MLP, recorded: its activation in cuBLASLt's epilogue, or as a pass of its own.
void activation_case(const Settings& settings, Report& report, DType dtype) {
  const Sizes s = sizes_of(settings);
  const Tensor x = filled({s.tokens, s.width}, dtype).set_requires_grad(true);
  const Tensor w = filled({4 * s.width, s.width}, dtype);
  const Tensor b = filled({4 * s.width}, dtype);
  const Subject subject{fmt::format("linear to {}, gelu tanh", 4 * s.width), x.sizes().str(), dtype,
                        8.0 * static_cast<double>(s.tokens * s.width * s.width)};
  add(settings, report, subject,
      {timed(settings, "one after the other", [&] { gelu(linear(x, w, b), GeluKind::Tanh); }),
       timed(settings, "in one", [&] { linear(x, w, b, Activation::GeluTanh); })});
}

// A convolution with a bias, recorded, and its activation: in cuDNN's graph where it offers that, or apart.
void conv_activation_case(const Settings& settings, Report& report, DType dtype) {
  const Sizes s = sizes_of(settings);
  const Dims map{s.batch, s.channels, s.side, s.side};
  const Tensor x = Tensor(channels_last(map, dtype)).set_requires_grad(true);
  const Tensor w(channels_last({s.channels, s.channels, 3, 3}, dtype));
  const Tensor b = filled({s.channels}, dtype);
  const double flops = 18.0 * static_cast<double>(numel_of(map) * s.channels);
  const auto in_one = [&](Activation activation) {
    return timed(settings, "in one",
                 [&, activation] { conv(x, w, b, {.padding = {1}, .activation = activation}); });
  };
  add(settings, report, {"conv 3x3, relu", map.str(), dtype, flops},
      {timed(settings, "one after the other", [&] { relu(conv(x, w, b, {.padding = {1}})); }),
       in_one(Activation::Relu)});
  add(settings, report, {"conv 3x3, gelu", map.str(), dtype, flops},
      {timed(settings, "one after the other", [&] { gelu(conv(x, w, b, {.padding = {1}})); }),
       in_one(Activation::Gelu)});
}

Dims attention_sizes(const Settings& settings) {
  const Sizes s = sizes_of(settings);
  return {1, s.heads, s.tokens / 8, device_is_emulated() ? 8 : 64};
}
double attention_flops(const Dims& sizes) {
  return 4.0 * static_cast<double>(sizes[1] * sizes[2] * sizes[2] * sizes[3]);
}

// Attention beside its two products alone, whose scores lie in memory.
void product_attention_case(const Settings& settings, Report& report, DType dtype) {
  const Sizes s = sizes_of(settings);
  const Dims sizes = attention_sizes(settings);
  const std::int64_t tokens = sizes[2];
  const std::int64_t size = sizes[3];
  const Tensor q = filled(sizes, dtype);
  const auto first = bare_product({tokens, tokens, size, s.heads, true}, dtype, false);
  const auto second = bare_product({size, tokens, tokens, s.heads, false}, dtype, false);
  const Subject subject{"attention, forward", sizes.str(), dtype, attention_flops(sizes)};
  add(settings, report, subject,
      {timed(settings, "its products by cuBLASLt",
             [&] {
               first();
               second();
             }),
       timed(settings, "attention", [&] {
         const NoGrad guard;
         scaled_dot_product_attention(q, q, q);
       })});
}

// Memory of [N, H, L, D] with the tokens outermost, as attention lays what it gives.
Array by_tokens(const Dims& sizes, DType dtype) {
  return filled({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype).local().transpose(1, 2);
}
cuda::HeadStrides strides_of(const Array& a) { return {a.stride(0), a.stride(1), a.stride(2)}; }

// What cuDNN is asked for by attention of whole sequences; what it gives has the tokens outermost.
std::function<void()> bare_attention(AttentionPass pass, const Array& q, const Array& dout) {
  const cpu::AttentionSizes sizes{.batch = q.size(0),
                                  .heads = q.size(1),
                                  .key_heads = q.size(1),
                                  .rows = q.size(2),
                                  .keys = q.size(2),
                                  .d = q.size(3),
                                  .dv = q.size(3)};
  AttentionGraph graph =
      cuda::attention_form(pass, q.dtype(), sizes, false, 1 / std::sqrt(static_cast<double>(q.size(3))));
  graph.q = graph.k = graph.v = strides_of(q);
  graph.out = strides_of(dout);
  if (pass == AttentionPass::Backward) graph.dout = graph.dq = graph.dk = graph.dv_out = strides_of(dout);
  return bare_call(graph);
}

// In half precision: beside the same graphs of cuDNN's alone.
void attention_cases(const Settings& settings, Report& report, DType dtype) {
  const Dims sizes = attention_sizes(settings);
  const Tensor q = filled(sizes, dtype).set_requires_grad(true);
  const Tensor k = filled(sizes, dtype).set_requires_grad(true);
  const Tensor v = filled(sizes, dtype).set_requires_grad(true);
  const Tensor dout = Tensor(by_tokens(sizes, dtype));
  const Tensor out = scaled_dot_product_attention(q, k, v);
  const auto forward = bare_attention(AttentionPass::Forward, q.local(), dout.local());
  const auto backward = bare_attention(AttentionPass::Backward, q.local(), dout.local());
  Subject subject{"attention, forward", sizes.str(), dtype, attention_flops(sizes)};
  add(settings, report, subject, {timed(settings, "bare cuDNN", forward), timed(settings, "attention", [&] {
                                    const NoGrad guard;
                                    scaled_dot_product_attention(q, k, v);
                                  })});
  subject.name = "attention, backward";
  subject.flops *= 2.5;  // five products
  add(settings, report, subject, {timed(settings, "bare cuDNN", backward), timed(settings, "attention", [&] {
                                    grad({out}, {q, k, v}, {dout}, {.retain_graph = true});
                                  })});
}

}  // namespace

void device_kernels(const Settings& settings, Report& report) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    conv_cases(settings, report, dtype);
    product_case(settings, report, dtype);
    activation_case(settings, report, dtype);
    conv_activation_case(settings, report, dtype);
    if (is_half(dtype))
      attention_cases(settings, report, dtype);
    else
      product_attention_case(settings, report, dtype);
  }
}

}  // namespace tessera::bench
