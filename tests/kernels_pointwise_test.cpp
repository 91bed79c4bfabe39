// Element-wise kernels against scalar formulas in double.
#include "tests/kernels_pointwise_reference.h"
#include "tests/kernels_support.h"

#include <bit>
#include <functional>
#include <limits>

#include "ops/cpu/pointwise.h"
#include "ops/cpu/simd/tables.h"
#include "runtime/error.h"
#include "runtime/threads.h"
#include "tests/support/half.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::BinaryOp;
using cpu::UnaryOp;

namespace {

bool only_positive(UnaryOp op) {
  return op == UnaryOp::Log || op == UnaryOp::Sqrt || op == UnaryOp::Rsqrt || op == UnaryOp::PowScalar ||
         op == UnaryOp::Log1p || op == UnaryOp::Reciprocal;
}

// What f16 has no room for is infinite.
void limit(std::vector<double>& values, DType dtype) {
  for (double& v : values)
    if (dtype == DType::F16 && std::abs(v) >= 65520) v = nearest_f16(v);
}

void make_positive(const Array& x) { cpu::unary({.out = x, .x = x, .op = UnaryOp::Abs}); }

void check_unary(UnaryOp op, const Array& x, Random& random, Tolerance tolerance) {
  INFO(cpu::name_of(op) << " " << name_of(x.dtype()) << " " << x.sizes().str() << " strides "
                        << x.strides().str());
  const Array out = awkward(x.sizes(), cpu::writes_bool(op) ? DType::Bool : x.dtype(), random);
  cpu::unary({.out = out, .x = x, .op = op, .alpha = kAlpha, .beta = kBeta});
  std::vector<double> expected = x.to_vector();
  for (double& v : expected) v = unary_reference(op, v);
  limit(expected, out.dtype());
  check_close(out.to_vector(), expected, tolerance);
}

bool is_power(BinaryOp op) {
  return op == BinaryOp::Pow || op == BinaryOp::PowBaseSlope || op == BinaryOp::PowExponentSlope;
}

double binary_reference(BinaryOp op, double a, double b) {
  if (op == BinaryOp::PowBaseSlope) return b == 0 ? 0.0 : b * std::pow(a, b - 1);
  if (op == BinaryOp::PowExponentSlope) return a == 0 && b >= 0 ? 0.0 : std::pow(a, b) * std::log(a);
  return is_gradient(op) ? gradient_reference(op, a, b) : arithmetic_reference(op, a, b);
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
      v = binary_reference(op, v, other[i]);
      if (integer && op == BinaryOp::Div) v = std::trunc(v);
    }
  }
  limit(expected, out.dtype());
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
      for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
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
      for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
        const Dims sizes = random_sizes(random, static_cast<int>(pick(random, 0, 4)), 9);
        const Array a = random_array(sizes, dtype, random, 2.0, coin(random));
        Array b = random_array(sizes, dtype, random, 2.0, coin(random));
        if (op == BinaryOp::PowScalarBackward || is_power(op)) {
          b = b.clone();
          make_positive(b);
        }
        if (is_power(op)) {
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
  for (DType dtype : {DType::I32, DType::I64}) {
    const Array base = Array::from(std::vector<double>{2, 3, 0, 0, -1, -1, 1, -2, 2, -7}, {10}, dtype);
    const Array exponent = Array::from(std::vector<double>{3, -1, 0, -2, 5, -4, -3, 3, 31, 0}, {10}, dtype);
    const Array power = Array::empty({10}, dtype);
    cpu::binary({.out = power, .a = base, .b = exponent, .op = BinaryOp::Pow});
    const double high = dtype == DType::I32 ? -2147483648.0 : 2147483648.0;  // i32 wraps
    CHECK(power.to_vector() == std::vector<double>{8, 0, 1, 0, -1, 1, 1, -8, high, 1});
  }
  const Array t = Array::from(std::vector<double>{0, 0, 1, 1}, {4}, DType::Bool);
  const Array u = Array::from(std::vector<double>{0, 1, 0, 1}, {4}, DType::Bool);
  const Array out = Array::empty({4}, DType::Bool);
  cpu::binary({.out = out, .a = t, .b = u, .op = BinaryOp::Mul});
  CHECK(out.to_vector() == std::vector<double>{0, 0, 0, 1});
  cpu::binary({.out = out, .a = t, .b = u, .op = BinaryOp::Maximum});
  CHECK(out.to_vector() == std::vector<double>{0, 1, 1, 1});
}

TEST_CASE("f16 is converted to the same bits by every build, at every length") {
  Random random(seed());
  std::vector<std::uint16_t> halves(65536);
  std::vector<float> floats(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
    floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (coin(random)) floats[i] = std::ldexp(floats[i], -std::ilogb(floats[i]) - static_cast<int>(i % 40));
  }
  for_each_isa([&] {
    const cpu::PointwiseTable& table = cpu::pointwise_table();
    for (std::size_t at = 0; at < halves.size();) {
      const std::size_t n = std::min(halves.size() - at, at < 900 ? at % 41 + 1 : 5000);
      std::vector<float> wide(n);
      std::vector<std::uint16_t> narrow(n);
      table.from_f16(wide.data(), halves.data() + at, static_cast<std::int64_t>(n));
      table.to_f16(narrow.data(), floats.data() + at, static_cast<std::int64_t>(n));
      for (std::size_t i = 0; i < n; ++i) {
        f16 h;
        h.bits = halves[at + i];
        REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == std::bit_cast<std::uint32_t>(static_cast<float>(h)));
        REQUIRE(narrow[i] == f16(floats[at + i]).bits);
      }
      at += n;
    }
  });
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
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
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
