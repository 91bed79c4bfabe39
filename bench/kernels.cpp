// Local kernels alone, as ops on plain tensors without recording. No ratios: rates.
#include "bench/groups.h"
#include "ops/cpu/conv.h"
#include "ops/ops.h"
#include "runtime/copy.h"

namespace tessera::bench {
namespace {

Tensor filled(const Dims& sizes) {
  Generator generator(11);
  return randn(sizes, generator);
}

struct Kernel {
  std::string name;
  std::string shape;
  std::function<void()> run;
  Work work;
};

double product(const Dims& d) { return static_cast<double>(numel_of(d)); }

Kernel linear_kernel(std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const Tensor x = filled({tokens, in});
  const Tensor w = filled({out, in});
  const Tensor b = filled({out});
  return {"linear",
          fmt::format("[{}, {}] to {}", tokens, in, out),
          [=] { linear(x, w, b); },
          {2.0 * product({tokens, in, out}), "GF/s"}};
}

Kernel matmul_kernel(std::int64_t n) {
  const Tensor a = filled({n, n});
  return {"matmul", fmt::format("[{}, {}]", n, n), [=] { matmul(a, a); }, {2.0 * product({n, n, n}), "GF/s"}};
}

Kernel attention_kernel(std::int64_t heads, std::int64_t tokens) {
  constexpr std::int64_t kHeadSize = 64;
  const Tensor q = filled({1, heads, tokens, kHeadSize});
  return {"attention",
          q.sizes().str(),
          [=] { scaled_dot_product_attention(q, q, q); },
          {4.0 * product({heads, tokens, tokens, kHeadSize}), "GF/s"}};
}

Kernel conv_kernel(const Dims& sizes) {
  const Array plain = filled(sizes).local();
  const Array x = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), DType::F32, Device::Cpu);
  copy_strided(x, plain);
  Dims w_sizes = sizes;
  w_sizes[0] = sizes[1];
  for (int d = 2; d < sizes.size(); ++d) w_sizes[d] = 3;
  const Tensor w = filled(w_sizes);
  ConvOptions options;
  options.padding = {1};
  const double flops = 2.0 * product(sizes) * product(w_sizes) / static_cast<double>(sizes[1]);
  return {sizes.size() == 4 ? "conv 3x3" : "conv 3x3x3",
          sizes.str(),
          [x = Tensor(x), w, options] { conv(x, w, Tensor(), options); },
          {flops, "GF/s"}};
}

Kernel layer_norm_kernel(std::int64_t rows, std::int64_t cols) {
  const Tensor x = filled({rows, cols});
  const Tensor w = filled({cols});
  return {"layer_norm",
          x.sizes().str(),
          [=] { layer_norm(x, {cols}, w, w); },
          {8.0 * product(x.sizes()), "GB/s"}};
}

Kernel gelu_kernel(std::int64_t rows, std::int64_t cols) {
  const Tensor x = filled({rows, cols});
  return {"gelu", x.sizes().str(), [=] { gelu(x); }, {8.0 * product(x.sizes()), "GB/s"}};
}

}  // namespace

void kernels(const Settings& settings, Report& report) {
  const std::vector<Kernel> all{
      linear_kernel(1024, 192, 768),    linear_kernel(1024, 768, 192), matmul_kernel(512),
      attention_kernel(3, 1024),        attention_kernel(8, 256),      conv_kernel({1, 64, 128, 128}),
      conv_kernel({1, 16, 48, 48, 48}), layer_norm_kernel(4096, 192),  gelu_kernel(1024, 768)};
  const NoGrad guard;
  for (const Kernel& k : all)
    report.add({.group = "kernels",
                .name = k.name,
                .shape = k.shape,
                .timings = interleaved(settings, {repeated(settings, "plain", k.run, 0.02)}),
                .work = k.work});
}

}  // namespace tessera::bench
