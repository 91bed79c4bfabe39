// Sine, cosine, powers, softplus and log1p against the C library in a wider type, in units of the last place,
// over all magnitudes; what signs, zeros, infinities and NaN give; and that no number depends on its
// neighbours.
#include "tests/kernels_pointwise_reference.h"
#include "tests/kernels_support.h"

#include <bit>
#include <numbers>

#include "ops/cpu/simd/tables.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::BinaryOp;
using cpu::UnaryOp;

namespace {

template <class T>
const auto& blocks() {
  if constexpr (std::is_same_v<T, float>) {
    return cpu::pointwise_table().f32;
  } else {
    return cpu::pointwise_table().f64;
  }
}
template <class T>
std::vector<T> unary_of(UnaryOp op, const std::vector<T>& x, T alpha = T(0)) {
  std::vector<T> out(x.size());
  blocks<T>().unary[static_cast<std::size_t>(op)](out.data(), x.data(), static_cast<std::int64_t>(x.size()),
                                                  alpha, T(0));
  return out;
}
template <class T>
std::vector<T> binary_of(BinaryOp op, const std::vector<T>& a, const std::vector<T>& b, T alpha = T(0)) {
  std::vector<T> out(a.size());
  blocks<T>().binary[static_cast<std::size_t>(op)](out.data(), a.data(), b.data(),
                                                   static_cast<std::int64_t>(a.size()), alpha, T(0));
  return out;
}

// Equal to the bit, any NaN to any other.
template <class T>
bool same(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

// Units of the last place between the two; a wrong kind of number or a wrong sign of 0 is infinitely far.
template <class T>
double ulps(T got, long double expected) {
  const T rounded = static_cast<T>(expected);
  if (same(got, rounded)) return std::abs(got) < std::numeric_limits<T>::infinity() && got != T(0) ? 0.5 : 0;
  if (!std::isfinite(got) || !std::isfinite(rounded)) return kInf;
  const int exponent =
      std::max(std::ilogb(expected == 0 ? 0x1p-1074L : expected) + 1, std::numeric_limits<T>::min_exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<long double>(got) - expected) / unit);
}

template <class T, class F>
void check_ulps(const std::vector<T>& got, double most, const F& expected) {
  std::size_t worst = 0;
  double distance = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = ulps(got[i], expected(i));
    if (d > distance) {
      distance = d;
      worst = i;
    }
  }
  INFO("number " << worst << ": " << got[worst] << " for " << static_cast<double>(expected(worst)));
  CHECK(distance <= most);
}

// Of every sign and magnitude, NaN and infinities among them.
float any_float(Random& random) { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); }
template <class T>
T of_magnitude(Random& random, double least, double most) {
  const double size =
      std::exp(std::uniform_real_distribution<double>(std::log(least), std::log(most))(random));
  return static_cast<T>(coin(random) ? size : -size);
}
double between(Random& random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}

template <class T>
void check_circular(const std::vector<T>& x, double most) {
  check_ulps(unary_of(UnaryOp::Sin, x), most, [&](std::size_t i) {
    return std::is_same_v<T, float> ? std::sin(static_cast<double>(x[i]))
                                    : std::sin(static_cast<long double>(x[i]));
  });
  check_ulps(unary_of(UnaryOp::Cos, x), most, [&](std::size_t i) {
    return std::is_same_v<T, float> ? std::cos(static_cast<double>(x[i]))
                                    : std::cos(static_cast<long double>(x[i]));
  });
}

const std::vector<float> kTelling{0.0F,
                                  -0.0F,
                                  1.0F,
                                  -1.0F,
                                  2.0F,
                                  -2.0F,
                                  3.0F,
                                  -3.0F,
                                  0.5F,
                                  -0.5F,
                                  1.5F,
                                  -1.5F,
                                  -4.5F,
                                  127.0F,
                                  -149.0F,
                                  -150.0F,
                                  1e-40F,
                                  -1e-40F,
                                  1e-45F,
                                  -1e-45F,
                                  3e38F,
                                  -3e38F,
                                  1e10F,
                                  -1e10F,
                                  8388607.0F,
                                  -8388607.0F,
                                  8388608.5F,
                                  16777215.0F,
                                  -16777215.0F,
                                  16777216.0F,
                                  1.0000001F,
                                  0.99999994F,
                                  -0.99999994F,
                                  std::numeric_limits<float>::infinity(),
                                  -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};

// What PyTorch does with the exponent; NaN: nothing special.
template <class T>
T special_power(T x, double exponent) {
  if (exponent == 0) return T(1);
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == -1) return T(1) / x;
  if (exponent == -2) return T(1) / (x * x);
  if (exponent == 0.5) return std::sqrt(x);
  return T(1) / std::sqrt(x);
}

template <class T>
void check_special_powers(Random& random) {
  std::vector<T> x(kTelling.begin(), kTelling.end());
  for (int i = 0; i < 600; ++i) x.push_back(of_magnitude<T>(random, 1e-38, 1e38));
  const std::vector<T> dy(x.size(), T(1.25));
  for (const double exponent : {0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5}) {
    INFO("exponent " << exponent);
    const std::vector<T> y = unary_of(UnaryOp::PowScalar, x, T(exponent));
    // The exponent of the slope is one less.
    const std::vector<T> dx = binary_of(BinaryOp::PowScalarBackward, dy, x, T(exponent + 1));
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO("of " << x[i] << ": " << y[i] << ", slope " << dx[i]);
      const T expected = special_power(x[i], exponent);
      REQUIRE(same(y[i], expected));
      REQUIRE(same(dx[i], exponent == -1 ? T(0) : dy[i] * (T(exponent + 1) * expected)));
    }
  }
}

}  // namespace

TEST_CASE("sine and cosine of floats are right to the last place, whatever their size") {
  Random random(seed());
  for_each_isa([&] {
    std::vector<float> x(kTelling);
    for (int i = 0; i < 20000; ++i) x.push_back(any_float(random));
    for (int i = 0; i < 20000; ++i) x.push_back(of_magnitude<float>(random, 1e-3, 3e8));
    for (int i = 0; i < 5000; ++i)  // near a zero of one of them
      x.push_back(static_cast<float>(std::numbers::pi / 2 *
                                     static_cast<double>(pick(random, -160000000, 160000000))));
    check_circular(x, 0.6);
  });
}

TEST_CASE("sine and cosine of doubles are right to the last place, whatever their size") {
  Random random(seed());
  for_each_isa([&] {
    std::vector<double> x(kTelling.begin(), kTelling.end());
    for (int i = 0; i < 10000; ++i) x.push_back(of_magnitude<double>(random, 1e-320, 1e308));
    for (int i = 0; i < 20000; ++i) x.push_back(of_magnitude<double>(random, 1e-3, 2e6));
    for (int i = 0; i < 5000; ++i)
      x.push_back(std::numbers::pi / 2 * static_cast<double>(pick(random, -660000, 660000)));
    check_circular(x, 0.9);
  });
}

TEST_CASE("far angles among near ones change no other number, in place and at any length") {
  Random random(seed());
  for_each_isa([&] {
    for (const UnaryOp op : {UnaryOp::Sin, UnaryOp::Cos}) {
      std::vector<double> x(static_cast<std::size_t>(pick(random, 1, 1500)));
      for (double& v : x) v = of_magnitude<double>(random, 1e-3, pick(random, 0, 40) == 0 ? 1e300 : 1e4);
      const std::vector<double> y = unary_of(op, x);
      for (std::size_t i = 0; i < x.size(); ++i)
        REQUIRE(same(unary_of(op, std::vector<double>{x[i]})[0], y[i]));
      std::vector<double> in_place = x;
      blocks<double>().unary[static_cast<std::size_t>(op)](in_place.data(), in_place.data(),
                                                           static_cast<std::int64_t>(x.size()), 0, 0);
      CHECK(in_place == y);
    }
  });
}

TEST_CASE("powers of floats are right to the last place, and those of telling numbers are the C library's") {
  Random random(seed());
  std::vector<float> x;
  std::vector<float> p;
  const auto add = [&](double base, double exponent) {
    x.push_back(static_cast<float>(base));
    p.push_back(static_cast<float>(exponent));
  };
  for (const float base : kTelling)
    for (const float exponent : kTelling) add(base, exponent);
  for (int i = 0; i < 10000; ++i) add(any_float(random), any_float(random));
  for (int i = 0; i < 10000; ++i) add(any_float(random), static_cast<double>(pick(random, -40, 40)));
  for (int i = 0; i < 10000; ++i) add(between(random, 0, 4), between(random, -4, 4));
  for (int i = 0; i < 10000; ++i) add(1 + between(random, -1e-3, 1e-3), between(random, -150000, 150000));
  for (int i = 0; i < 10000; ++i) {  // results of every magnitude
    const float base = std::abs(of_magnitude<float>(random, 1e-44, 1e38));
    add(base, between(random, -160, 160) / std::log2(base));
  }
  const auto power = [](float base, float exponent) {
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  };
  for_each_isa([&] {
    check_ulps(binary_of(BinaryOp::Pow, x, p), 0.51, [&](std::size_t i) { return power(x[i], p[i]); });
    const float exponent = static_cast<float>(between(random, -3, 3));
    check_ulps(unary_of(UnaryOp::PowScalar, x, exponent), 0.51,
               [&](std::size_t i) { return power(x[i], exponent); });
  });
}

TEST_CASE(
    "powers by small whole numbers and roots are products, quotients and roots to the bit, slopes too") {
  Random random(seed());
  for_each_isa([&] {
    check_special_powers<float>(random);
    check_special_powers<double>(random);
  });
}

TEST_CASE("softplus and log1p of floats are within two units of the last place") {
  Random random(seed());
  for_each_isa([&] {
    std::vector<float> x;
    for (int i = 0; i < 20000; ++i) x.push_back(static_cast<float>(between(random, -87, 30)));
    for (int i = 0; i < 2000; ++i) x.push_back(static_cast<float>(between(random, 30, 3e38)));
    check_ulps(unary_of(UnaryOp::Softplus, x), 2.0, [&](std::size_t i) -> long double {
      return x[i] > 40.0F ? x[i] : std::log1p(std::exp(static_cast<long double>(x[i])));
    });
    std::vector<float> rest;
    for (int i = 0; i < 20000; ++i) rest.push_back(of_magnitude<float>(random, 1e-30, i % 2 == 0 ? 1 : 1e-4));
    for (int i = 0; i < 20000; ++i) rest.push_back(std::abs(of_magnitude<float>(random, 1, 3e38)));
    check_ulps(unary_of(UnaryOp::Log1p, rest), 2.0,
               [&](std::size_t i) { return std::log1p(static_cast<long double>(rest[i])); });
  });
}
