// Matrix products and convolutions against double loops.
#include "tests/kernels_conv_cases.h"

#include <thread>

#include "ops/cpu/matmul.h"
#include "runtime/error.h"
#include "runtime/progress.h"
#include "runtime/threads.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

// c += a b on row-major values.
void product(std::vector<double>& c, const std::vector<double>& a, const std::vector<double>& b,
             const Dims& mnk, std::int64_t batch) {
  const std::int64_t m = mnk[0], n = mnk[1], k = mnk[2];
  for (std::int64_t t = 0; t < batch; ++t)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t p = 0; p < k; ++p)
          c[static_cast<std::size_t>((t * m + i) * n + j)] +=
              a[static_cast<std::size_t>((t * m + i) * k + p)] *
              b[static_cast<std::size_t>((t * k + p) * n + j)];
}

Array matrix(const Dims& sizes, DType dtype, Random& random) {
  switch (pick(random, 0, 3)) {
    case 0:
      return random_array(sizes, dtype, random, 1.0, true);  // expanded or in any order
    case 1: {
      Dims swapped = sizes;
      std::swap(swapped[sizes.size() - 1], swapped[sizes.size() - 2]);
      return random_array(swapped, dtype, random, 1.0).clone().transpose(sizes.size() - 1, sizes.size() - 2);
    }
    default:
      return random_array(sizes, dtype, random, 1.0).clone();
  }
}

void check_matmul(const Dims& batch, const Dims& mnk, DType dtype, Random& random) {
  const auto with = [&](std::int64_t r, std::int64_t c) {
    Dims sizes = batch;
    sizes.push_back(r);
    sizes.push_back(c);
    return sizes;
  };
  const Array a = matrix(with(mnk[0], mnk[2]), dtype, random);
  const Array b = matrix(with(mnk[2], mnk[1]), dtype, random);
  const Array c =
      coin(random) ? awkward(with(mnk[0], mnk[1]), dtype, random) : Array::empty(with(mnk[0], mnk[1]), dtype);
  const bool integer = !is_floating(dtype);
  const Array bias = coin(random) ? random_array({mnk[1]}, dtype, random) : Array();
  const bool accumulate = coin(random);
  INFO(name_of(dtype) << " batch " << batch.str() << " mnk " << mnk.str() << " a " << a.strides().str()
                      << " b " << b.strides().str() << " c " << c.strides().str() << " bias "
                      << bias.defined() << " accumulate " << accumulate);
  c.fill_(accumulate ? 2.0 : 99.0);
  std::vector<double> expected(static_cast<std::size_t>(c.numel()), accumulate ? 2.0 : 0.0);
  product(expected, a.to_vector(), b.to_vector(), mnk, numel_of(batch));
  if (bias.defined()) {
    const std::vector<double> bv = bias.to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bv[i % bv.size()];
  }
  cpu::matmul({c, a, b, bias, accumulate});
  // Rounding of k additions, of ours and of the reference, and of the stored result.
  const double e = integer ? 0.0 : epsilon(dtype);
  const double added = (static_cast<double>(mnk[2]) + 4) * (is_half(dtype) ? epsilon(DType::F32) : e);
  check_close(c.to_vector(), expected, {4 * e + added, 4 * added + 2 * e});
}

}  // namespace

TEST_CASE("matrix products agree with double loops for any layout, batch and type") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64, DType::I32})
      for (int trial = 0; trial < 24; ++trial) {
        const std::int64_t most = trial % 3 == 0 ? 70 : 12;
        check_matmul(random_sizes(random, static_cast<int>(pick(random, 0, 2)), 4),
                     {pick(random, 1, most), pick(random, 1, most), pick(random, 1, most)}, dtype, random);
      }
  });
}

TEST_CASE("larger matrix products, over the blocks of our own code") {
  Random random(seed());
  for_each_isa([&] {
    check_matmul({}, {203, 131, 301}, DType::F64, random);
    check_matmul({}, {131, 203, 301}, DType::F32, random);
    check_matmul({2}, {64, 1000, 40}, DType::F64, random);
  });
}

TEST_CASE("long matrix products, in pieces of rows or of sums, are those of float64") {
  static int polls = 0;
  const ProgressFunction before = progress_function();
  const int threads = thread_count();
  set_thread_count(1);
  Random random(seed());
  constexpr std::int64_t kLong = 2100;  // no multiple of a piece
  for (const bool outer : {false, true})
    for (const bool accumulate : {false, true}) {
      const std::int64_t m = outer ? 700 : kLong;
      const std::int64_t k = outer ? kLong : 700;
      const std::int64_t n = 704;
      Array a = random_array(outer ? Dims{k, m} : Dims{m, k}, DType::F32, random).clone();
      if (outer) a = a.transpose(0, 1);
      const Array b = random_array({k, n}, DType::F32, random).clone();
      const Array bias = accumulate ? Array() : random_array({n}, DType::F32, random).clone();
      const Array c = random_array({m, n}, DType::F32, random).clone();
      const Array exact = c.to(DType::F64);
      polls = 0;
      set_progress_function([] { ++polls; });
      cpu::matmul({c, a, b, bias, accumulate});
      set_progress_function(before);
      CHECK(polls > 0);
      cpu::matmul({exact, a.to(DType::F64), b.to(DType::F64), accumulate ? Array() : bias.to(DType::F64),
                   accumulate});
      check_close(c.to_vector(), exact.to_vector(), {1e-5, 2e-4});
    }
  set_thread_count(threads);
}

TEST_CASE("matrix products with a size of zero") {
  Random random(seed());
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64}) {
    check_matmul({}, {3, 4, 0}, dtype, random);
    check_matmul({2}, {0, 4, 5}, dtype, random);
    check_matmul({2}, {3, 0, 5}, dtype, random);
    check_matmul({0}, {3, 4, 5}, dtype, random);
  }
}

TEST_CASE("convolutions agree with double loops in one, two and three dims") {
  Random random(seed());
  const std::vector<DType> types{DType::F32, DType::F64, DType::F16, DType::BF16};
  for_each_isa([&] {
    for (int spatial = 1; spatial <= 3; ++spatial)
      for (std::size_t trial = 0; trial < 10; ++trial)
        check_conv(random_conv(spatial, random), types[trial % 4], random);
  });
}

TEST_CASE("convolutions with wide channels and patches") {
  Random random(seed());
  const ConvCase wide{2, 32, 48, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const ConvCase patches{2, 5, 24, 1, {12, 16}, {4, 4}, {4, 4}, {0, 0}, {0, 0}, {1, 1}};
  const ConvCase depthwise{1, 32, 32, 32, {9, 9}, {7, 7}, {1, 1}, {3, 3}, {3, 3}, {1, 1}};
  for (const ConvCase& c : {wide, patches, depthwise})
    for (DType dtype : {DType::F32, DType::F64}) check_conv(c, dtype, random);
}

// oneDNN's AVX2 code for their weights' gradient writes past its memory when it leaves elements out itself.
TEST_CASE("kernels of one element that leave elements out, channels that are no whole vectors") {
  Random random(seed());
  const Dims one{1, 1};
  const Dims zero{0, 0};
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t groups = pick(random, 1, 2);
    const Dims sizes{pick(random, 1, 12), pick(random, 1, 12)};
    const Dims stride{pick(random, 1, 3), pick(random, 1, 3)};
    check_conv({pick(random, 1, 3), groups * pick(random, 1, 18), groups * pick(random, 1, 18), groups, sizes,
                one, stride, zero, zero, one},
               DType::F32, random);
  }
}

TEST_CASE("kernels of one element with few filters") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 60; ++trial) {
      const int spatial = static_cast<int>(pick(random, 1, 3));
      const Dims one = Dims::filled(spatial, 1);
      const Dims zero = Dims::filled(spatial, 0);
      const std::int64_t channels = coin(random) ? 8 * pick(random, 1, 6) : pick(random, 1, 40);
      const std::int64_t most = spatial == 2 ? 48 : 9;  // positions of several pieces
      check_conv({pick(random, 1, 3), channels, pick(random, 1, 5), 1, random_sizes(random, spatial, most),
                  one, one, zero, zero, one},
                 DType::F32, random);
    }
  });
}

TEST_CASE("depthwise convolutions of long lines: what is within the map is read where it lies") {
  Random random(seed());
  for_each_isa([&] {
    for (int spatial = 1; spatial <= 3; ++spatial)
      for (int trial = 0; trial < 6; ++trial) {
        ConvCase c = random_conv(spatial, random);
        c.groups = c.c = c.o = trial == 0 ? 512 : 32 * pick(random, 1, 3);
        const int last = spatial - 1;
        for (int d = 0; d < last; ++d) c.in[d] = std::max<std::int64_t>(c.dilation[d] * c.kernel[d], 4);
        c.kernel[last] = 3 + 2 * pick(random, 0, 2);
        if (coin(random)) c.stride[last] = 1;
        c.lo[last] = pick(random, 0, 9);
        c.in[last] = c.stride[last] * pick(random, 8, 40) + pick(random, 4, 12);
        check_conv(c, trial % 2 == 0 ? DType::F32 : DType::F64, random);
      }
  });
}

TEST_CASE("depthwise convolutions with wide kernels") {
  Random random(seed());
  for_each_isa([&] {
    for (int spatial = 1; spatial <= 3; ++spatial)
      for (int trial = 0; trial < 4; ++trial) {
        ConvCase c = random_conv(spatial, random);
        c.groups = c.c = c.o = pick(random, 2, 75);
        c.kernel[spatial - 1] = pick(random, 5, 11);
        c.lo[spatial - 1] = pick(random, 0, 6);
        const std::int64_t range = c.dilation[spatial - 1] * (c.kernel[spatial - 1] - 1) + 1;
        c.in[spatial - 1] = std::max<std::int64_t>(1, range - c.lo[spatial - 1]) + pick(random, 0, 12);
        check_conv(c, DType::F32, random);
      }
  });
}

TEST_CASE("several threads of one process may call kernels at the same time") {
  Random random(seed());
  const Array a = random_array({90, 70}, DType::F32, random).clone();
  const Array b = random_array({70, 50}, DType::F32, random).clone();
  const Array x = image({2, 8, 12, 12}, DType::F32, random).clone();
  const Array w = random_array({8, 8, 3, 3}, DType::F32, random).clone();
  const cpu::ConvGeometry g{{1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
  std::vector<std::vector<double>> results(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const Array c = Array::empty({90, 50}, DType::F32);
        const Array y = Array::empty(x.sizes(), DType::F32);
        cpu::matmul({c, a, b, {}, false});
        cpu::conv_forward({y, x, w, {}, g});
        results[2 * t] = c.to_vector();
        results[2 * t + 1] = y.to_vector();
      }
    });
  for (std::thread& t : threads) t.join();
  for (std::size_t t = 1; t < 4; ++t) {
    CHECK(results[2 * t] == results[0]);
    CHECK(results[2 * t + 1] == results[1]);
  }
}

TEST_CASE("convolutions of nothing") {
  const cpu::ConvGeometry g{{1}, {1}, {1}, {1}, 1};
  for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    const Array w = Array::full({2, 3, 3}, 1.0, dtype);
    const Array bias = Array::from(std::vector<double>{1, 2}, {2}, dtype);
    cpu::conv_forward({Array::empty({0, 2, 5}, dtype), Array::empty({0, 3, 5}, dtype), w, bias, g});
    const Array dw = Array::full({2, 3, 3}, 5.0, dtype);
    cpu::conv_backward_weight({dw, Array::empty({0, 2, 5}, dtype), Array::empty({0, 3, 5}, dtype), g});
    CHECK(largest(dw.to_vector()) == 0.0);
    const Array y = Array::empty({1, 2, 4}, dtype);
    cpu::conv_forward({y, Array::empty({1, 0, 4}, dtype), Array::empty({2, 0, 3}, dtype), bias, g});
    CHECK(y.to_vector() == std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2});
    // An input that windows of a leading part do not reach.
    const cpu::ConvGeometry open{{1}, {0}, {0}, {1}, 1};
    const Array dx = Array::full({1, 3, 9}, 7.0, dtype);
    cpu::conv_backward_data({dx, Array::full({1, 2, 2}, 1.0, dtype), w, open});
    CHECK(dx.at(0) == 2.0);
    CHECK(dx.at(1) == 4.0);
    CHECK(dx.at(4) == 0.0);
    CHECK(dx.at(8) == 0.0);
  }
}

TEST_CASE("refusals of products and convolutions name the sizes") {
  const auto zeros = [](const Dims& sizes) { return Array::zeros(sizes, DType::F32); };
  CHECK_THROWS_AS(cpu::matmul({zeros({2, 2}), zeros({2, 3}), zeros({4, 2}), {}, false}), Error);
  CHECK_THROWS_AS(cpu::matmul({zeros({2, 2}), zeros({2, 3}), Array::zeros({3, 2}, DType::F64), {}, false}),
                  Error);
  const cpu::ConvGeometry g{{1}, {0}, {0}, {1}, 1};
  CHECK_THROWS_AS(cpu::conv_forward({zeros({1, 2, 5}), zeros({1, 3, 5}), zeros({2, 3, 3}), {}, g}), Error);
  CHECK_THROWS_AS(cpu::conv_forward({zeros({1, 2, 3}), zeros({1, 3, 5}), zeros({2, 4, 3}), {}, g}), Error);
  const Array y = zeros({1, 2, 3});
  const auto with = [&](cpu::Activation activation, const Array& z) {
    cpu::conv_forward({y, zeros({1, 3, 5}), zeros({2, 3, 3}), {}, g, activation, z});
  };
  CHECK_THROWS_WITH(with(cpu::Activation::None, y.clone()), Catch::Contains("what an activation is given"));
  CHECK_THROWS_WITH(with(cpu::Activation::Gelu, zeros({1, 2, 4})), Catch::Contains("they must be alike"));
  CHECK_THROWS_AS(with(cpu::Activation::Gelu, Array::zeros({1, 2, 3}, DType::F64)), Error);
}
