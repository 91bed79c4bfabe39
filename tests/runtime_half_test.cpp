// f16 against arithmetic in double: every number there is, and floats at, between and near them.
#include <catch2/catch.hpp>

#include <bit>
#include <random>

#include "runtime/dtype.h"
#include "tests/support/half.h"

using namespace tessera;

namespace {

f16 of_bits(std::uint32_t bits) {
  f16 h;
  h.bits = static_cast<std::uint16_t>(bits);
  return h;
}

// Equal, the sign of zero too.
bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

void check_rounding(float v) {
  const double got = static_cast<float>(f16(v));
  const double want = nearest_f16(v);
  if (!same(got, want)) FAIL(v << " becomes " << got << " instead of " << want);
}

}  // namespace

TEST_CASE("all 65536 numbers of f16 come back from float as they were") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 h = of_bits(bits);
    const float wide = h;
    const double want = value_of_f16(h.bits);
    if (std::isnan(want)) {
      REQUIRE(std::isnan(wide));
      REQUIRE(std::signbit(wide) == (bits >= 0x8000U));
      REQUIRE(f16(wide).bits == (bits | 0x200U));  // quiet, what it carries is kept
    } else {
      REQUIRE(same(wide, want));
      REQUIRE(f16(wide).bits == bits);
    }
  }
}

TEST_CASE("floats become the nearest f16, of two the even one") {
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const float low = of_bits(bits);
    const float high = bits + 1 == 0x7c00U ? 65536.0F : static_cast<float>(of_bits(bits + 1));
    const float middle = 0.5F * (low + high);
    for (const float v : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
      check_rounding(v);
      check_rounding(-v);
    }
  }
  std::mt19937 random(7);
  for (int i = 0; i < 400000; ++i) {
    const float any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(any)) check_rounding(any);
    check_rounding(std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 50U) - 64));
  }
  for (const float v : {65504.0F, 65519.0F, 65520.0F, 1e30F, 0x1p-25F, 0x1.8p-25F, 1e-45F,
                        std::numeric_limits<float>::infinity()})
    for (const float sign : {1.0F, -1.0F}) check_rounding(sign * v);
}

TEST_CASE("f16 among the other types") {
  CHECK(size_of(DType::F16) == 2);
  CHECK(name_of(DType::F16) == "f16");
  CHECK((is_floating(DType::F16) && is_half(DType::F16)));
  CHECK(promote(DType::F16, DType::F16) == DType::F16);
  CHECK(promote(DType::F16, DType::BF16) == DType::F32);
  CHECK(promote(DType::F16, DType::F32) == DType::F32);
  CHECK(promote(DType::F64, DType::F16) == DType::F64);
  for (const DType t : {DType::I64, DType::I32, DType::Bool}) CHECK(promote(t, DType::F16) == DType::F16);
}
