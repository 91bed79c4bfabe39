// What is worked out in four types on the device, beside the CPU in double on the same numbers: sums of
// products (convolutions and their gradients, matrix products), element-wise operations, reductions, pools.
//
// How far a result may be off follows from what is rounded. Inputs are the same on both sides, as the type
// holds them. A result is rounded to its type; one to which a bias is added may be so twice. Sums are kept in
// f32 at least, and each of their roundings is off by at most a unit of the magnitudes summed. With TF32 each
// factor has ten bits behind the first.
#include <cuda_runtime_api.h>

#include <string_view>

#include "ops/cpu/activation_ops.h"
#include "ops/cuda/precision.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "tests/device/kernel_support.h"
#include "tests/kernels_conv_cases.h"

using namespace tessera;
using namespace tessera::device_kernels;
using kernel_tests::ConvCase;

namespace {

// Half a step between numbers near 1.
double unit(DType t) {
  return t == DType::F64 ? 0x1p-53 : t == DType::F16 ? 0x1p-11 : t == DType::BF16 ? 0x1p-8 : 0x1p-24;
}
constexpr double kSmallest = 0x1p-24;  // step of f16 around 0, as long as nothing else is as coarse
constexpr double kTf32 = 0x1p-9;       // two factors, rounded or cut to ten bits

// Exact sums, and the sums of what was added without its signs.
struct Sums {
  std::vector<double> value, magnitude;
  explicit Sums(std::int64_t n)
      : value(static_cast<std::size_t>(n)), magnitude(static_cast<std::size_t>(n)) {}
  void add(std::size_t i, double term) {
    value[i] += term;
    magnitude[i] += std::abs(term);
  }
};

struct Allowed {
  double terms = 0;    // that are summed for one result
  double factors = 0;  // relative error of each product
  double added = 0;    // the largest bias
};

// The largest error as a share of what is allowed in f32 without TF32, for tests that look for lost digits.
double check_sums(const Array& got, const Sums& want, const Allowed& allowed) {
  const DType t = got.dtype();
  const double kept = unit(statistic(t));
  const std::vector<double> a = got.to_vector();
  REQUIRE(a.size() == want.value.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double exact = 2 * unit(t) * (std::abs(want.value[i]) + allowed.added) +
                         (allowed.terms + 2) * kept * want.magnitude[i] + (is_half(t) ? kSmallest : 0);
    const double error = std::abs(a[i] - want.value[i]);
    if (!(error <= exact + allowed.factors * want.magnitude[i]))
      FAIL("element " << i << " is " << a[i] << " instead of " << want.value[i] << ", allowed is " << exact);
    if (exact > 0) worst = std::max(worst, error / exact);
  }
  return worst;
}

void add_bias(Sums& to, const Array& per_channel, std::int64_t positions) {
  const std::vector<double> b = per_channel.to_vector();
  for (std::size_t i = 0; i < to.value.size(); ++i)
    to.add(i, b[i / static_cast<std::size_t>(positions) % b.size()]);
}

// All three directions of one convolution. Answers as check_sums.
double check_convolution(const ConvCase& c, DType t, Random& random, bool tf32 = false) {
  const Array x = kernel_tests::image(kernel_tests::with_spatial(c.n, c.c, c.in), t, random);
  const Array dy = kernel_tests::image(kernel_tests::with_spatial(c.n, c.o, c.out()), t, random);
  const Array w = scattered(random, kernel_tests::with_spatial(c.o, c.c / c.groups, c.kernel), t);
  const bool biased = random_int(random, 0, 1) == 0;
  const Array bias = biased ? scattered(random, {c.o}, t) : Array();
  const Array data_bias = biased ? filled(random, {c.c}, t) : Array();
  INFO(name_of(t) << " " << c.text() << (biased ? " biased" : "") << (tf32 ? " TF32" : ""));
  Sums y(dy.numel()), dx(x.numel()), dw(w.numel());
  const std::vector<double> xs = x.to_vector(), ws = w.to_vector(), dys = dy.to_vector();
  kernel_tests::for_each_product(c, [&](std::size_t o, std::size_t i, std::size_t k) {
    y.add(o, xs[i] * ws[k]);
    dx.add(i, dys[o] * ws[k]);
    dw.add(k, dys[o] * xs[i]);
  });
  const std::int64_t outs = numel_of(c.out()), taps = numel_of(c.kernel);
  if (biased) add_bias(y, bias, outs);
  if (biased) add_bias(dx, data_bias, numel_of(c.in));
  const double factors = tf32 ? kTf32 : 0;
  const double added = biased ? 2 : 0;
  const cpu::ConvGeometry g{c.stride, c.lo, c.hi, c.dilation, c.groups};
  const auto forward = moved_args(cpu::ConvArgs{Array::zeros(dy.sizes(), t), x, w, bias, g});
  call_on_device(kernels::conv_forward, forward);
  const auto data = moved_args(cpu::ConvBackwardDataArgs{Array::zeros(x.sizes(), t), dy, w, g, data_bias});
  call_on_device(kernels::conv_backward_data, data);
  const auto weight = moved_args(cpu::ConvBackwardWeightArgs{Array::zeros(w.sizes(), t), dy, x, g});
  call_on_device(kernels::conv_backward_weight, weight);
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  return std::max({check_sums(forward.y, y, {count(c.c / c.groups * taps), factors, added}),
                   check_sums(data.dx, dx, {count(c.o / c.groups * taps), factors, added}),
                   check_sums(weight.dw, dw, {count(c.n * outs), factors, 0})});
}

// A convolution with its activation, whose slopes are at most 1.13: what it is given may be rounded before.
void check_activated(const ConvCase& c, DType t, Random& random, bool tf32) {
  const Array x = kernel_tests::image(kernel_tests::with_spatial(c.n, c.c, c.in), t, random);
  const Array like = kernel_tests::image(kernel_tests::with_spatial(c.n, c.o, c.out()), t, random);
  const Array w = scattered(random, kernel_tests::with_spatial(c.o, c.c / c.groups, c.kernel), t);
  const Array bias = random_int(random, 0, 1) == 0 ? scattered(random, {c.o}, t) : Array();
  const auto activation = static_cast<cpu::Activation>(random_int(random, 1, 4));
  const Array z = random_int(random, 0, 1) == 0 ? like : Array();
  INFO(name_of(t) << " " << c.text() << (bias.defined() ? " biased" : "") << (tf32 ? " TF32" : "")
                  << " activation " << static_cast<int>(activation) << (z.defined() ? " and z" : ""));
  Sums exact(like.numel());
  const std::vector<double> xs = x.to_vector(), ws = w.to_vector();
  kernel_tests::for_each_product(
      c, [&](std::size_t o, std::size_t i, std::size_t k) { exact.add(o, xs[i] * ws[k]); });
  if (bias.defined()) add_bias(exact, bias, numel_of(c.out()));
  const Array wanted = Array::from(exact.value, like.sizes(), DType::F64);
  cpu::unary({wanted, wanted, cpu::forward_op(activation)});
  const cpu::ConvGeometry g{c.stride, c.lo, c.hi, c.dilation, c.groups};
  const auto call = moved_args(cpu::ConvArgs{Array::zeros(like.sizes(), t), x, w, bias, g, activation, z});
  call_on_device(kernels::conv_forward, call);
  const Allowed allowed{static_cast<double>(c.c / c.groups * numel_of(c.kernel)), tf32 ? kTf32 : 0, 2};
  if (z.defined()) check_sums(call.z, exact, allowed);
  const std::vector<double> got = call.y.to_vector(), want = wanted.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double given = 2 * unit(t) * (std::abs(exact.value[i]) + allowed.added) +
                         ((allowed.terms + 2) * unit(statistic(t)) + allowed.factors) * exact.magnitude[i];
    const double after = (2 * unit(t) + 8 * unit(statistic(t))) * (1 + std::abs(want[i]));
    if (!(std::abs(got[i] - want[i]) <= 1.13 * given + after + (is_half(t) ? kSmallest : 0)))
      FAIL("element " << i << " is " << got[i] << " instead of " << want[i]);
  }
}

// One operand of products: dense, transposed, with gaps, or (`repeats`) one matrix for the whole batch.
Array matrices(Random& random, const Dims& sizes, DType t, bool repeats) {
  const int n = sizes.size() - 2;
  Dims flipped = sizes;
  std::swap(flipped[n], flipped[n + 1]);
  switch (random_int(random, 0, repeats ? 3 : 2)) {
    case 0:
      return filled(random, sizes, t);
    case 1:
      return filled(random, flipped, t).transpose(n, n + 1);
    case 2:
      return scattered(random, sizes, t);
    default:
      return filled(random, {sizes[n], sizes[n + 1]}, t).expand(sizes);
  }
}

struct Product {
  Dims batch;
  std::int64_t m = 1, n = 1, k = 1;
};

double check_product(const Product& p, DType t, Random& random, bool tf32 = false) {
  const auto sized = [&](std::int64_t rows, std::int64_t cols) {
    Dims sizes = p.batch;
    sizes.push_back(rows);
    sizes.push_back(cols);
    return sizes;
  };
  cpu::MatmulArgs args{matrices(random, sized(p.m, p.n), t, false),
                       matrices(random, sized(p.m, p.k), t, true), matrices(random, sized(p.k, p.n), t, true),
                       Array()};
  args.accumulate = random_int(random, 0, 2) == 0;
  if (!args.accumulate && random_int(random, 0, 1) == 0) args.bias = scattered(random, {p.n}, t);
  INFO(name_of(t) << " c " << args.c.sizes().str() << args.c.strides().str() << " a "
                  << args.a.strides().str() << " b " << args.b.sizes().str() << args.b.strides().str()
                  << (args.accumulate       ? " accumulate"
                      : args.bias.defined() ? " bias"
                                            : "")
                  << (tf32 ? " TF32" : ""));
  const auto there = moved_args(args);
  call_on_device(kernels::matmul, there);
  Sums want(args.c.numel());
  const std::vector<double> a = args.a.to_vector(), b = args.b.to_vector(), c = args.c.to_vector();
  const std::vector<double> bias = args.bias.defined() ? args.bias.to_vector() : std::vector<double>();
  for (std::int64_t e = 0; e < numel_of(p.batch); ++e)
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        const auto at = static_cast<std::size_t>((e * p.m + i) * p.n + j);
        if (args.accumulate) want.add(at, c[at]);
        if (!bias.empty()) want.add(at, bias[static_cast<std::size_t>(j)]);
        for (std::int64_t k = 0; k < p.k; ++k)
          want.add(at, a[static_cast<std::size_t>((e * p.m + i) * p.k + k)] *
                           b[static_cast<std::size_t>((e * p.k + k) * p.n + j)]);
      }
  const double added = args.accumulate || !bias.empty() ? 2 : 0;
  return check_sums(there.c, want, {static_cast<double>(p.k + 1), tf32 ? kTf32 : 0, added});
}

// One rounding to the type of what the CPU works out in double; functions are good to `error` in f32.
void check_rounded(const Array& got, const Array& exact, double error) {
  const DType t = got.dtype();
  const std::vector<double> a = got.to_vector();
  const std::vector<double> v = exact.to_vector();
  const std::vector<double> b = Array::from(v, exact.sizes(), t).to_vector();
  REQUIRE(a.size() == b.size());
  const double relative = t == DType::F64 ? 1e-12 : error;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                      (std::isfinite(b[i]) && std::abs(a[i] - v[i]) <= 1.01 * unit(t) * std::abs(v[i]) +
                                                                           relative * (1 + std::abs(v[i])));
    if (!same) FAIL(name_of(t) << ": element " << i << " is " << a[i] << " instead of " << v[i]);
  }
}

// The kernel on the device, and on the CPU with every number in double.
template <class Args>
void check_in_double(const Kernel<void(const Args&)>& kernel, const Args& args, double error = 2e-6) {
  INFO(kernel.name());
  Args there = moved_args(args);
  Args wide = args;
  cuda::for_each_array(wide, [](Array& a) {
    if (a.defined() && is_floating(a.dtype())) a = a.to(DType::F64);
  });
  kernel(Device::Cpu, wide);
  call_on_device(kernel, there);
  std::vector<Array> wanted;
  cuda::for_each_array(wide, [&](Array& a) { wanted.push_back(a); });
  std::size_t i = 0;
  cuda::for_each_array(there, [&](Array& a) {
    if (a.defined()) check_rounded(a, wanted[i], error);
    ++i;
  });
}

class Tf32 {
 public:
  Tf32() { cuda::allow_tf32(true); }
  ~Tf32() { cuda::allow_tf32(before_); }
  Tf32(const Tf32&) = delete;
  Tf32& operator=(const Tf32&) = delete;

 private:
  bool before_ = cuda::tf32_allowed();
};

bool emulated_device() {
  cudaDeviceProp properties{};
  return cudaGetDeviceProperties(&properties, 0) == cudaSuccess &&
         std::string_view(properties.name) == "emulated device";
}

// An operation on the device and its gradient, beside those on the CPU in double.
template <class F>
void check_operation(const char* name, const Dims& sizes, DType t, Random& random, const F& f) {
  INFO(name << " " << sizes.str());
  const Array x = scattered(random, sizes, t);
  const auto input = [](const Array& a) { return Tensor(a).set_requires_grad(); };
  const Tensor wide = input(x.to(DType::F64));
  const Tensor narrow = input(moved(x));
  const Tensor want = f(wide);
  const Tensor got = f(narrow);
  REQUIRE(got.dtype() == t);
  check_rounded(got.local(), want.local(), 2e-6);
  const Array dy = filled(random, want.sizes(), t);
  want.backward(Tensor(dy.to(DType::F64)));
  got.backward(Tensor(dy.to(Device::Cuda)));
  check_rounded(narrow.grad().local(), wide.grad().local(), 2e-6);
}

}  // namespace

TEST_CASE("convolutions and their gradients in every type", "[device]") {
  Random random = test_random(31);
  for (int trial = 0; trial < 48; ++trial) {
    const DType t = kFloating[trial % 4];
    cuda::allow_cudnn(trial % 6 != 5);  // else our own kernels
    check_convolution(kernel_tests::random_conv(1 + trial / 4 % 3, random), t, random);
  }
  cuda::allow_cudnn(true);
}

TEST_CASE("convolutions with their activation in every type", "[device]") {
  Random random = test_random(34);
  for (int trial = 0; trial < 96; ++trial) {
    const DType t = kFloating[trial % 4];
    ConvCase c = kernel_tests::random_conv(1 + trial / 4 % 3, random);
    if (trial % 3 != 0) {  // channels of which cuDNN takes any activation along
      c.groups = 1;
      c.c = 8 * random_int(random, 1, 2);
      c.o = 8 * random_int(random, 1, 3);
    }
    cuda::allow_cudnn(trial % 6 != 5);
    check_activated(c, t, random, false);
    if (const Tf32 allowed; t == DType::F32) check_activated(c, t, random, true);
  }
  cuda::allow_cudnn(true);
}

TEST_CASE("matrix products in every type", "[device]") {
  Random random = test_random(32);
  for (int trial = 0; trial < 80; ++trial) {
    Product p{{}, size_up_to(random, 40), size_up_to(random, 40), size_up_to(random, 60)};
    for (std::int64_t d = random_int(random, 0, 2); d > 0; --d) p.batch.push_back(random_int(random, 1, 6));
    if (trial % 10 == 9) p.k = 0;
    check_product(p, kFloating[trial % 4], random);
  }
}

TEST_CASE("TF32 rounds factors of f32, and nothing else", "[device]") {
  Random random = test_random(33);
  const Product product{{2}, 48, 40, 64};
  const ConvCase conv{2, 16, 24, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  REQUIRE(!cuda::tf32_allowed());
  const Tf32 allowed;
  const double of_product = check_product(product, DType::F32, random, true);
  const double of_conv = check_convolution(conv, DType::F32, random, true);
  // Libraries may round, and need not; their stand-ins do.
  if (emulated_device()) {
    CHECK(of_product > 1);
    CHECK(of_conv > 1);
  }
  for (const DType t : {DType::F64, DType::BF16, DType::F16}) {
    check_product(product, t, random);
    check_convolution(conv, t, random);
  }
}

TEST_CASE("element-wise operations in every type", "[device]") {
  Random random = test_random(34);
  for (const DType t : kFloating) {
    const Dims sizes{5, 1, 7};
    const Dims wide{5, 6, 7};
    for (int op = 0; op < static_cast<int>(cpu::UnaryOp::kCount); ++op) {
      const auto o = static_cast<cpu::UnaryOp>(op);
      INFO(cpu::name_of(o));
      const DType out = cpu::writes_bool(o) ? DType::Bool : t;
      check_in_double(kernels::unary, cpu::UnaryArgs{Array::zeros(wide, out),
                                                     scattered(random, sizes, t).expand(wide), o, 0.5, 1.25});
    }
    for (int op = 0; op < static_cast<int>(cpu::BinaryOp::kCount); ++op) {
      const auto o = static_cast<cpu::BinaryOp>(op);
      INFO(cpu::name_of(o));
      const DType out = cpu::is_comparison(o) ? DType::Bool : t;
      check_in_double(kernels::binary,
                      cpu::BinaryArgs{Array::zeros(wide, out), scattered(random, wide, t),
                                      scattered(random, sizes, t).expand(wide), o, 0.5, 1.25});
    }
    check_in_double(kernels::where,
                    cpu::WhereArgs{scattered(random, wide, t), filled(random, wide, DType::Bool),
                                   scattered(random, wide, t), scattered(random, wide, t)});
  }
}

TEST_CASE("reductions in every type", "[device]") {
  Random random = test_random(35);
  for (int trial = 0; trial < 64; ++trial) {
    const DType t = kFloating[trial % 4];
    const auto kind = static_cast<cpu::ReduceKind>(trial / 4 % 4);
    const bool product = kind == cpu::ReduceKind::Product;
    const std::int64_t most = product ? 4 : 400;  // products of more would leave every type
    const Dims sizes{size_up_to(random, most / 4), size_up_to(random, most), size_up_to(random, most / 4)};
    Dims kept = sizes;
    for (int d = 0; d < 3; ++d)
      if (random_int(random, 0, 1) == 0) kept[d] = 1;
    if (product) kept[0] = sizes[0];
    INFO("sizes " << sizes.str() << " to " << kept.str());
    const Array x = product ? filled(random, sizes, t, 0.5, 1.5) : scattered(random, sizes, t);
    check_in_double(kernels::reduce, cpu::ReduceArgs{Array::zeros(kept, t), x, kind}, 1e-5);
    const DType s = statistic(t);
    check_in_double(
        kernels::moments,
        cpu::MomentsArgs{Array::zeros(kept, s), Array::zeros(kept, s), scattered(random, sizes, t)}, 1e-5);
  }
}

TEST_CASE("pools and interpolation in every type, with their gradients", "[device]") {
  Random random = test_random(36);
  for (int trial = 0; trial < 3; ++trial)
    for (const DType t : kFloating) {
      const Dims map{random_int(random, 1, 2), random_int(random, 1, 3), random_int(random, 5, 9),
                     random_int(random, 5, 12)};
      check_operation("max_pool2d", map, t, random, [](const Tensor& x) {
        return max_pool2d(x, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .ceil_mode = true});
      });
      check_operation("max_pool1d", {2, map[1], map[3]}, t, random,
                      [](const Tensor& x) { return max_pool1d(x, {2}, {.dilation = {2}}); });
      check_operation("avg_pool2d", map, t, random, [](const Tensor& x) {
        return avg_pool2d(x, {2, 3}, {.stride = {1, 2}, .padding = {1, 1}, .count_include_pad = false});
      });
      check_operation("avg_pool3d", {1, 2, 4, map[2], map[3]}, t, random, [](const Tensor& x) {
        return avg_pool3d(x, {2, 2, 3});
      });
      check_operation("adaptive_avg_pool2d", map, t, random, [](const Tensor& x) {
        return adaptive_avg_pool2d(x, {3, 4});
      });
      check_operation("interpolate", map, t, random, [](const Tensor& x) {
        return interpolate(x, {.size = {7, 11}, .mode = InterpolateMode::Bilinear});
      });
    }
}
