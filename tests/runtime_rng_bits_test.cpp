// The bits of random values, recorded once and fixed for all time: a change of any of them changes every
// trained model. Another compiler, other flags and another processor give the same (runtime/rng.h).
//
// The numbers below were made by GCC 12.2 at -O3 on an x86-64 with AVX-512. GCC 12.2 at -O0, -O2 and -O3
// (with -march=native, too) and Clang 14 at -O0, -O2 and -O3 gave the same, with -ffp-contract=off, as the
// library is compiled.
#include <catch2/catch.hpp>

#include "runtime/rng.h"
#include "runtime/rng_kernels.h"
#include "runtime/rng_math.h"

using namespace tessera;

namespace {

// FNV-1a, a value at a time.
class Checksum {
 public:
  void add(std::uint64_t bits) { sum_ = (sum_ ^ bits) * 0x100000001b3ULL; }
  void add(const Array& values) {
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      if (values.dtype() == DType::F64) add(std::bit_cast<std::uint64_t>(values.data<double>()[i]));
      if (values.dtype() == DType::F32) add(std::bit_cast<std::uint32_t>(values.data<float>()[i]));
      if (is_half(values.dtype())) add(static_cast<const std::uint16_t*>(values.raw())[i]);
    }
  }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

struct Draw {
  RngKey key;
  std::int64_t offset;
};
// Seeds, streams and offsets from the smallest to the largest; 20,011 values of each.
constexpr Draw kDraws[] = {
    {{0, 0}, 0},
    {{1, 0}, 3},
    {{0x1234567890abcdefULL, 42}, 1000003},
    {{0xffffffffffffffffULL, 0xffffffffffffffffULL}, (std::int64_t{1} << 58) - 20011},
    {{7, 0x100000000ULL}, (std::int64_t{1} << 34) - 5},
    {{0x8000000000000000ULL, 1}, (std::int64_t{1} << 32) + 2},
};
constexpr std::int64_t kValues = 20011;

template <class Fill>
std::uint64_t checksum_of(DType dtype, const Fill& fill) {
  Checksum sum;
  for (const Draw& draw : kDraws) {
    const Array values = Array::empty({kValues}, dtype);
    fill(values, whole_box({kValues}, draw.offset), draw.key);
    sum.add(values);
  }
  return sum.value();
}

std::uint64_t normals(DType dtype) {
  return checksum_of(
      dtype, [](const Array& out, const IndexBox& box, RngKey key) { fill_normal(out, box, key, 0, 1); });
}
std::uint64_t scaled_normals(DType dtype) {
  return checksum_of(dtype, [](const Array& out, const IndexBox& box, RngKey key) {
    fill_normal(out, box, key, 0.1, 0.02);
  });
}
std::uint64_t truncated_normals(DType dtype) {
  return checksum_of(dtype, [](const Array& out, const IndexBox& box, RngKey key) {
    fill_truncated_normal(out, box, key, {0, 0.7, -1, 1.5});
  });
}
std::uint64_t uniforms(DType dtype) {
  return checksum_of(
      dtype, [](const Array& out, const IndexBox& box, RngKey key) { fill_uniform(out, box, key, -0.3, 1); });
}

using Bits = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("the bits of 120,066 values of every kind") {
  CHECK(normals(DType::F64) == 0x4bf9cc74a68beeb1ULL);
  CHECK(normals(DType::F32) == 0x179de7272455b5bbULL);
  CHECK(scaled_normals(DType::F64) == 0x105cbab25832e965ULL);
  CHECK(scaled_normals(DType::F32) == 0x070e4853e2f92ef4ULL);
  CHECK(scaled_normals(DType::BF16) == 0x4807eb701d7bca14ULL);
  CHECK(truncated_normals(DType::F64) == 0xe7056413e34de327ULL);
  CHECK(truncated_normals(DType::F32) == 0x88b2b38a5d811afbULL);
  CHECK(uniforms(DType::F64) == 0xb6abcc0a5e14df87ULL);
  CHECK(uniforms(DType::F32) == 0x4ee2feff7718fb0cULL);
  CHECK(uniforms(DType::F16) == 0x2d7d493639386ec3ULL);
}

TEST_CASE("the words that values are made of, by every instruction set of the machine") {
  for (const detail::RngKernels& kernels : detail::machine_rng_kernels()) {
    INFO(kernels.name);
    Checksum sum;
    for (const Draw& draw : kDraws) {
      std::vector<std::uint32_t> words(4 * 5003);
      kernels.words(draw.key, static_cast<std::uint64_t>(draw.offset) / 4, 5003, words.data());
      for (const std::uint32_t w : words) sum.add(w);
    }
    CHECK(sum.value() == 0x0aa694f7367b5808ULL);
  }
}

// What the words of an element can be at worst: both ends of the logarithm, the places where its mantissa
// changes over, and all around the turn where sine and cosine change places.
TEST_CASE("the bits of normals of extreme words") {
  constexpr std::uint32_t kRadii[] = {0,           1,           0xb504f332U, 0xb504f333U,
                                      0x7fffffffU, 0x80000000U, 0xfffffffeU, 0xffffffffU};
  constexpr std::uint32_t kAngles[] = {0,           1,           0x1fffffffU, 0x20000000U, 0x3fffffffU,
                                       0x40000000U, 0x80000000U, 0xbfffffffU, 0xe0000000U, 0xffffffffU};
  Bits bits;
  for (const std::uint32_t a : kRadii)
    bits.push_back(std::bit_cast<std::uint64_t>(detail::box_muller(a, 0).first));
  CHECK(bits == Bits{0x401aa4499161cd47ULL, 0x401a38dfe3405e49ULL, 0x3feaa4499196db4bULL,
                     0x3feaa44991608001ULL, 0x3ff2d6abe44afc43ULL, 0x3ff2d6abe42fce9eULL,
                     0x3ef6a09e6684e3f4ULL, 0x8000000000000000ULL});
  bits.clear();
  for (const std::uint32_t b : kAngles) {
    const detail::NormalPair z = detail::box_muller(0, b);
    bits.push_back(std::bit_cast<std::uint64_t>(z.first));
    bits.push_back(std::bit_cast<std::uint64_t>(z.second));
  }
  CHECK(bits == Bits{0x401aa4499161cd47ULL, 0x0ULL,
                     0x401aa4499161cd47ULL, 0x3e44eca4243b6557ULL,
                     0x4012d6abe4c15a00ULL, 0x4012d6abe3d49e85ULL,
                     0x4012d6abe44afc42ULL, 0x4012d6abe44afc43ULL,
                     0x3e44eca4243b6557ULL, 0x401aa4499161cd47ULL,
                     0x8000000000000000ULL, 0x401aa4499161cd47ULL,
                     0xc01aa4499161cd47ULL, 0x8000000000000000ULL,
                     0xbe44eca4243b6557ULL, 0xc01aa4499161cd47ULL,
                     0x4012d6abe44afc43ULL, 0xc012d6abe44afc42ULL,
                     0x401aa4499161cd47ULL, 0xbe44eca4243b6557ULL});
  bits.clear();
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, (std::int64_t{1} << 58) - 1})
    for (const RngKey key : {RngKey{0, 0}, RngKey{~0ULL, ~0ULL}}) {
      bits.push_back(std::bit_cast<std::uint64_t>(normal(key, i)));
      bits.push_back(std::bit_cast<std::uint64_t>(uniform_f64(key, i)));
      bits.push_back(std::bit_cast<std::uint32_t>(uniform_f32(key, i)));
    }
  CHECK(bits == Bits{0x3fefb7665db1b649ULL, 0x3fd989fa356a5dc6ULL, 0x3ecc4fd0ULL, 0xbff958c6992c01bbULL,
                     0x3fce9df183d7c668ULL, 0x3e74ef8cULL, 0xbfed96d5ff0aec98ULL, 0x3fec2d38b1b2bd3bULL,
                     0x3f6169c5ULL, 0x3fe2f7c21833c497ULL, 0x3fdc5a60f5b8350cULL, 0x3ee2d306ULL,
                     0x3fdd71d00f162484ULL, 0x3fdbec0ec396e354ULL, 0x3edf6076ULL, 0xbfd8a2f9624ea8ccULL,
                     0x3fe2545ba73b456dULL, 0x3f12a2ddULL});
}
