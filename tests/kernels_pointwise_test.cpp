// Element-wise kernels and optimizer steps against scalar formulas in double.
#include "kernels_support.h"

#include <functional>
#include <limits>

#include "ops/cpu/adamw.h"
#include "ops/cpu/pointwise.h"
#include "runtime/error.h"
#include "runtime/threads.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::BinaryOp;
using cpu::UnaryOp;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kAlpha = 0.75;
constexpr double kBeta = 1.25;

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI); }
double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? 0.0 : x; }
double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// Derivatives by a five-point rule: an independent check of the closed forms.
double derivative(const std::function<double(double)>& f, double x) {
  const double h = 1e-3;
  return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h);
}
double second_derivative(const std::function<double(double)>& f, double x) {
  const double h = 2e-3;
  return (-f(x - 2 * h) + 16 * f(x - h) - 30 * f(x) + 16 * f(x + h) - f(x + 2 * h)) / (12 * h * h);
}

double unary_reference(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::Neg:
      return -x;
    case UnaryOp::Abs:
      return std::abs(x);
    case UnaryOp::Square:
      return x * x;
    case UnaryOp::Sign:
      return sign(x);
    case UnaryOp::Relu:
      return x < 0 ? 0.0 : x;
    case UnaryOp::Affine:
      return kAlpha * x + kBeta;
    case UnaryOp::Clamp:
      return x < kAlpha ? kAlpha : x > kBeta ? kBeta : x;
    case UnaryOp::Step:
      return x > 0 ? 1.0 : 0.0;
    case UnaryOp::Gelu:
      return x * normal_cdf(x);
    case UnaryOp::GeluTanh:
      return gelu_tanh(x);
    case UnaryOp::Silu:
      return x / (1.0 + std::exp(-x));
    case UnaryOp::Sigmoid:
      return sigmoid(x);
    case UnaryOp::Tanh:
      return std::tanh(x);
    case UnaryOp::Exp:
      return std::exp(x);
    case UnaryOp::Expm1:
      return std::expm1(x);
    case UnaryOp::Log:
      return std::log(x);
    case UnaryOp::Log1p:
      return std::log1p(x);
    case UnaryOp::Sqrt:
      return std::sqrt(x);
    case UnaryOp::Rsqrt:
      return 1.0 / std::sqrt(x);
    case UnaryOp::Reciprocal:
      return 1.0 / x;
    case UnaryOp::Sin:
      return std::sin(x);
    case UnaryOp::Cos:
      return std::cos(x);
    case UnaryOp::Erf:
      return std::erf(x);
    case UnaryOp::Softplus:
      return softplus(x);
    case UnaryOp::LeakyRelu:
      return x > 0 ? x : kAlpha * x;
    case UnaryOp::Elu:
      return x > 0 ? x : kAlpha * std::expm1(x);
    case UnaryOp::PowScalar:
      return std::pow(x, kAlpha);
    case UnaryOp::Floor:
      return std::floor(x);
    case UnaryOp::Ceil:
      return std::ceil(x);
    case UnaryOp::Round:
      return std::nearbyint(x);
    case UnaryOp::LogicalNot:
      return x == 0 ? 1.0 : 0.0;
    case UnaryOp::IsFinite:
      return std::isfinite(x) ? 1.0 : 0.0;
    case UnaryOp::IsNan:
      return std::isnan(x) ? 1.0 : 0.0;
    default:
      return kNan;
  }
}

double arithmetic_reference(BinaryOp op, double a, double b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case BinaryOp::Add:
      return a + kAlpha * b;
    case BinaryOp::Sub:
      return a - kAlpha * b;
    case BinaryOp::Mul:
      return a * b;
    case BinaryOp::Div:
      return a / b;
    case BinaryOp::Maximum:
      return nan ? kNan : std::max(a, b);
    case BinaryOp::Minimum:
      return nan ? kNan : std::min(a, b);
    case BinaryOp::Pow:
      return std::pow(a, b);
    case BinaryOp::Atan2:
      return std::atan2(a, b);
    case BinaryOp::Eq:
      return a == b;
    case BinaryOp::Ne:
      return a != b;
    case BinaryOp::Lt:
      return a < b;
    case BinaryOp::Le:
      return a <= b;
    case BinaryOp::Gt:
      return a > b;
    default:
      return a >= b;
  }
}

double gradient_reference(BinaryOp op, double dy, double x) {
  const auto of = [x](UnaryOp f) { return derivative([f](double v) { return unary_reference(f, v); }, x); };
  switch (op) {
    case BinaryOp::ReluBackward:
      return x > 0 ? dy : 0.0;
    case BinaryOp::AbsBackward:
      return dy * sign(x);
    case BinaryOp::GeluBackward:
      return dy * of(UnaryOp::Gelu);
    case BinaryOp::GeluTanhBackward:
      return dy * of(UnaryOp::GeluTanh);
    case BinaryOp::SiluBackward:
      return dy * of(UnaryOp::Silu);
    case BinaryOp::SigmoidBackward:
      return dy * x * (1 - x);
    case BinaryOp::TanhBackward:
      return dy * (1 - x * x);
    case BinaryOp::SqrtBackward:
      return dy / (2 * x);
    case BinaryOp::RsqrtBackward:
      return -0.5 * dy * x * x * x;
    case BinaryOp::ReciprocalBackward:
      return -dy * x * x;
    case BinaryOp::ErfBackward:
      return dy * of(UnaryOp::Erf);
    case BinaryOp::SoftplusBackward:
      return dy * of(UnaryOp::Softplus);
    case BinaryOp::LeakyReluBackward:
      return x > 0 ? dy : kAlpha * dy;
    case BinaryOp::EluBackward:
      return x > 0 ? dy : dy * kAlpha * std::exp(x);
    case BinaryOp::ClampBackward:
      return x >= kAlpha && x <= kBeta ? dy : 0.0;
    case BinaryOp::PowScalarBackward:
      return dy * kAlpha * std::pow(x, kAlpha - 1);
    case BinaryOp::GeluSecond:
      return dy * second_derivative([](double v) { return v * normal_cdf(v); }, x);
    case BinaryOp::GeluTanhSecond:
      return dy * second_derivative(gelu_tanh, x);
    case BinaryOp::SiluSecond:
      return dy * second_derivative([](double v) { return v * sigmoid(v); }, x);
    default:
      return kNan;
  }
}

bool is_gradient(BinaryOp op) { return op >= BinaryOp::ReluBackward && op <= BinaryOp::SiluSecond; }

bool only_positive(UnaryOp op) {
  return op == UnaryOp::Log || op == UnaryOp::Sqrt || op == UnaryOp::Rsqrt || op == UnaryOp::PowScalar ||
         op == UnaryOp::Log1p || op == UnaryOp::Reciprocal;
}

void make_positive(const Array& x) { cpu::unary({.out = x, .x = x, .op = UnaryOp::Abs}); }

void check_unary(UnaryOp op, const Array& x, Random& random, Tolerance tolerance) {
  INFO(cpu::name_of(op) << " " << name_of(x.dtype()) << " " << x.sizes().str() << " strides "
                        << x.strides().str());
  const Array out = awkward(x.sizes(), cpu::writes_bool(op) ? DType::Bool : x.dtype(), random);
  cpu::unary({.out = out, .x = x, .op = op, .alpha = kAlpha, .beta = kBeta});
  std::vector<double> expected = x.to_vector();
  for (double& v : expected) v = unary_reference(op, v);
  check_close(out.to_vector(), expected, tolerance);
}

void check_binary(BinaryOp op, const Array& a, const Array& b, Random& random) {
  INFO(cpu::name_of(op) << " " << name_of(a.dtype()) << " " << a.sizes().str() << " strides "
                        << a.strides().str() << " and " << b.strides().str());
  const Array out = awkward(a.sizes(), cpu::is_comparison(op) ? DType::Bool : a.dtype(), random);
  const bool integer = !is_floating(a.dtype());
  cpu::binary({.out = out, .a = a, .b = b, .op = op, .alpha = integer ? 1.0 : kAlpha, .beta = kBeta});
  std::vector<double> expected = a.to_vector();
  const std::vector<double> other = b.to_vector();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double& v = expected[i];
    if (integer && op <= BinaryOp::Sub) {
      v = op == BinaryOp::Add ? v + other[i] : v - other[i];
    } else {
      v = is_gradient(op) ? gradient_reference(op, v, other[i]) : arithmetic_reference(op, v, other[i]);
      if (integer && op == BinaryOp::Div) v = std::trunc(v);
    }
  }
  const double e = epsilon(a.dtype());
  const bool numeric = is_gradient(op);  // the reference itself is a difference quotient
  check_close(out.to_vector(), expected, {4 * e, numeric ? std::max(8 * e, 2e-8) : 4e-45 + 2 * e});
}

}  // namespace

TEST_CASE("unary kernels agree with scalar formulas for any strides") {
  Random random(seed());
  for_each_isa([&] {
    for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
      const auto op = static_cast<UnaryOp>(i);
      for (DType dtype : {DType::F32, DType::F64, DType::BF16}) {
        const Dims sizes = random_sizes(random, static_cast<int>(pick(random, 0, 4)), 9);
        const Array x = random_array(sizes, dtype, random, coin(random) ? 2.0 : 12.0, coin(random));
        if (only_positive(op) || cpu::writes_bool(op)) {
          const Array positive = awkward(sizes, dtype, random);
          cpu::unary({.out = positive, .x = x, .op = UnaryOp::Abs});
          check_unary(op, positive, random, {6 * epsilon(dtype), epsilon(dtype)});
        } else {
          check_unary(op, x, random, {6 * epsilon(dtype), epsilon(dtype)});
        }
      }
    }
  });
}

TEST_CASE("unary kernels are accurate over the whole range of float") {
  Random random(seed());
  for_each_isa([&] {
    for (int i = 0; i < static_cast<int>(UnaryOp::LogicalNot); ++i) {
      const auto op = static_cast<UnaryOp>(i);
      std::vector<double> values;
      for (int k = 0; k < 4000; ++k) {
        const double magnitude = std::exp(std::uniform_real_distribution<double>(-20.0, 4.4)(random));
        values.push_back(only_positive(op) || coin(random) ? magnitude : -magnitude);
      }
      const Array x = Array::from(values, {4000}, DType::F32);
      // Where the result comes from a difference, the error is that of the terms.
      const bool absolute = op == UnaryOp::Affine || op == UnaryOp::Gelu || op == UnaryOp::GeluTanh ||
                            op == UnaryOp::Sin || op == UnaryOp::Cos;
      check_unary(op, x, random, {5e-7, absolute ? 3e-7 : 1e-37});
    }
  });
}

TEST_CASE("unary kernels treat NaN, infinities and zeros as the formulas do") {
  const std::vector<double> values{kNan,  kInf,  -kInf, 0.0,    1.0,  -1.0, 3e38,
                                   1e-38, 1e-44, 100.0, -100.0, 88.7, -87.5};
  Random random(seed());
  for_each_isa([&] {
    for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
      const auto op = static_cast<UnaryOp>(i);
      if (op == UnaryOp::GeluTanh || op == UnaryOp::Sin || op == UnaryOp::Cos) continue;
      const Array x = Array::from(values, {13}, DType::F32);
      INFO(cpu::name_of(op));
      const Array out = Array::empty({13}, cpu::writes_bool(op) ? DType::Bool : DType::F32);
      cpu::unary({.out = out, .x = x, .op = op, .alpha = kAlpha, .beta = kBeta});
      std::vector<double> expected = x.to_vector();
      for (double& v : expected) {
        v = unary_reference(op, v);
        if (std::isfinite(v) && !cpu::writes_bool(op)) v = static_cast<double>(static_cast<float>(v));
      }
      check_close(out.to_vector(), expected, {1e-6, 1e-37});
    }
  });
}

TEST_CASE("binary kernels agree with scalar formulas for any strides") {
  Random random(seed());
  for_each_isa([&] {
    for (int i = 0; i < static_cast<int>(BinaryOp::kCount); ++i) {
      const auto op = static_cast<BinaryOp>(i);
      for (DType dtype : {DType::F32, DType::F64, DType::BF16}) {
        const Dims sizes = random_sizes(random, static_cast<int>(pick(random, 0, 4)), 9);
        const Array a = random_array(sizes, dtype, random, 2.0, coin(random));
        Array b = random_array(sizes, dtype, random, 2.0, coin(random));
        if (op == BinaryOp::PowScalarBackward || op == BinaryOp::Pow) {
          b = b.clone();
          make_positive(b);
        }
        if (op == BinaryOp::Pow) {
          const Array base = a.clone();
          make_positive(base);
          check_binary(op, base, b, random);
        } else {
          check_binary(op, a, b, random);
        }
      }
    }
  });
}

TEST_CASE("binary kernels on integers and bool") {
  Random random(seed());
  const std::vector<BinaryOp> ops{BinaryOp::Add,     BinaryOp::Sub,     BinaryOp::Mul, BinaryOp::Div,
                                  BinaryOp::Maximum, BinaryOp::Minimum, BinaryOp::Eq,  BinaryOp::Ne,
                                  BinaryOp::Lt,      BinaryOp::Le,      BinaryOp::Gt,  BinaryOp::Ge};
  for (BinaryOp op : ops)
    for (DType dtype : {DType::I32, DType::I64}) {
      const Dims sizes = random_sizes(random, 3, 7);
      const Array a = random_array(sizes, dtype, random, 2.0, true);
      const Array b = random_array(sizes, dtype, random, 2.0, true).clone();
      if (op == BinaryOp::Div) {
        const Array zero = Array::empty(sizes, DType::Bool);
        cpu::unary({.out = zero, .x = b, .op = UnaryOp::LogicalNot});
        cpu::where({.out = b, .cond = zero, .a = Array::full(sizes, 3.0, dtype), .b = b});
      }
      check_binary(op, a, b, random);
    }
  const Array t = Array::from(std::vector<double>{0, 0, 1, 1}, {4}, DType::Bool);
  const Array u = Array::from(std::vector<double>{0, 1, 0, 1}, {4}, DType::Bool);
  const Array out = Array::empty({4}, DType::Bool);
  cpu::binary({.out = out, .a = t, .b = u, .op = BinaryOp::Mul});
  CHECK(out.to_vector() == std::vector<double>{0, 0, 0, 1});
  cpu::binary({.out = out, .a = t, .b = u, .op = BinaryOp::Maximum});
  CHECK(out.to_vector() == std::vector<double>{0, 1, 1, 1});
}

TEST_CASE("maximum and minimum pass NaN on from either side") {
  const Array a = Array::from(std::vector<double>{kNan, 1, kNan, 2}, {4}, DType::F32);
  const Array b = Array::from(std::vector<double>{1, kNan, kNan, 3}, {4}, DType::F32);
  const Array out = Array::empty({4}, DType::F32);
  for_each_isa([&] {
    for (BinaryOp op : {BinaryOp::Maximum, BinaryOp::Minimum}) {
      cpu::binary({.out = out, .a = a, .b = b, .op = op});
      const std::vector<double> v = out.to_vector();
      CHECK((std::isnan(v[0]) && std::isnan(v[1]) && std::isnan(v[2])));
      CHECK(v[3] == (op == BinaryOp::Maximum ? 3 : 2));
    }
  });
}

TEST_CASE("where picks by condition for every type and any strides") {
  Random random(seed());
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32, DType::Bool}) {
    const Dims sizes = random_sizes(random, 3, 8);
    const Array c = random_array(sizes, DType::Bool, random, 1.0, true);
    const Array a = random_array(sizes, dtype, random, 1.0, true);
    const Array b = random_array(sizes, dtype, random, 1.0, true);
    const Array out = awkward(sizes, dtype, random);
    cpu::where({.out = out, .cond = c, .a = a, .b = b});
    std::vector<double> expected = a.to_vector();
    const std::vector<double> cv = c.to_vector();
    const std::vector<double> bv = b.to_vector();
    for (std::size_t i = 0; i < cv.size(); ++i) expected[i] = cv[i] != 0 ? expected[i] : bv[i];
    CHECK(out.to_vector() == expected);
  }
}

TEST_CASE("long arrays give the same bits on one thread and on two") {
  Random random(seed());
  const int before = thread_count();
  const Array x = random_array({5, 30011}, DType::F32, random, 3.0, false);
  const Array one = Array::empty({5, 30011}, DType::F32);
  const Array two = Array::empty({5, 30011}, DType::F32);
  set_thread_count(1);
  cpu::unary({.out = one, .x = x, .op = UnaryOp::Gelu});
  set_thread_count(2);
  cpu::unary({.out = two, .x = x, .op = UnaryOp::Gelu});
  set_thread_count(before);
  CHECK(one.to_vector() == two.to_vector());
}

TEST_CASE("refusals of element-wise kernels name what was given") {
  const Array x = Array::zeros({2, 3}, DType::F32);
  CHECK_THROWS_AS(cpu::unary({.out = Array::zeros({3, 2}, DType::F32), .x = x, .op = UnaryOp::Exp}), Error);
  CHECK_THROWS_AS(cpu::unary({.out = Array::zeros({2, 3}, DType::F64), .x = x, .op = UnaryOp::Exp}), Error);
  const Array i = Array::zeros({2, 3}, DType::I64);
  CHECK_THROWS_AS(cpu::unary({.out = i, .x = i, .op = UnaryOp::Exp}), Error);
  CHECK_THROWS_AS(cpu::binary({.out = x, .a = x, .b = i, .op = BinaryOp::Add}), Error);
}

TEST_CASE("AdamW and SGD follow PyTorch's formulas") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64}) {
      const std::vector<Dims> shapes{{7}, {0}, {40000}, {3, 5}};
      std::vector<Array> p, g, m, v;
      for (const Dims& s : shapes) {
        p.push_back(random_array(s, dtype, random).clone());
        g.push_back(random_array(s, dtype, random).clone());
        m.push_back(Array::zeros(s, dtype));
        v.push_back(Array::zeros(s, dtype));
      }
      std::vector<double> rp = p[3].to_vector();
      std::vector<double> rm(15, 0.0), rv(15, 0.0);
      const std::vector<double> rg = g[3].to_vector();
      for (int t = 1; t <= 3; ++t) {
        cpu::adamw_step({p, g, m, v, 1e-2, 0.9, 0.99, 1e-8, 0.1, t});
        for (std::size_t i = 0; i < 15; ++i) {
          rp[i] *= 1 - 1e-2 * 0.1;
          rm[i] = 0.9 * rm[i] + 0.1 * rg[i];
          rv[i] = 0.99 * rv[i] + 0.01 * rg[i] * rg[i];
          const double denominator = std::sqrt(rv[i]) / std::sqrt(1 - std::pow(0.99, t)) + 1e-8;
          rp[i] -= 1e-2 / (1 - std::pow(0.9, t)) * rm[i] / denominator;
        }
      }
      check_close(p[3].to_vector(), rp, {20 * epsilon(dtype), 4 * epsilon(dtype)});
      std::vector<double> rb(15, 0.0);
      for (int t = 0; t < 3; ++t) {
        cpu::sgd_step({p, g, m, 0.1, 0.9, 0.0, 0.01, true, t == 0});
        for (std::size_t i = 0; i < 15; ++i) {
          const double d = rg[i] + 0.01 * rp[i];
          rb[i] = t == 0 ? d : 0.9 * rb[i] + d;
          rp[i] -= 0.1 * (d + 0.9 * rb[i]);
        }
      }
      check_close(p[3].to_vector(), rp, {60 * epsilon(dtype), 20 * epsilon(dtype)});
      double squares = 0;
      for (const Array& a : g)
        for (double x : a.to_vector()) squares += x * x;
      CHECK(cpu::sum_of_squares(g) == Approx(squares).epsilon(1e-12));
      cpu::scale_all(g, 0.5);
      CHECK(cpu::sum_of_squares(g) == Approx(squares / 4).epsilon(1e-6));
    }
  });
}
