// Random numbers: published vectors, moments, and that a box holds what the whole tensor holds there.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "runtime/copy.h"
#include "runtime/error.h"
#include "runtime/rng.h"
#include "runtime/rng_kernels.h"
#include "runtime/rng_math.h"
#include "runtime/threads.h"

using namespace tessera;

namespace {

constexpr RngKey kKey{0x1234567890abcdefULL, 42};

struct Moments {
  double mean = 0, variance = 0, skewness = 0, kurtosis = 0;
};
Moments moments(const std::vector<double>& v) {
  Moments m;
  const auto n = static_cast<double>(v.size());
  for (double x : v) m.mean += x / n;
  for (double x : v) m.variance += (x - m.mean) * (x - m.mean) / n;
  for (double x : v) m.skewness += std::pow((x - m.mean) / std::sqrt(m.variance), 3) / n;
  for (double x : v) m.kurtosis += std::pow((x - m.mean) / std::sqrt(m.variance), 4) / n;
  return m;
}

// The elements of `whole` that a box holds, in the box's order.
Array cut(const Array& whole, const IndexBox& box) {
  Array out = whole;
  for (int d = 0; d < whole.dim(); ++d) {
    const auto& list = box.intervals[static_cast<std::size_t>(d)];
    Dims sizes = out.sizes();
    sizes[d] = 0;
    for (const Interval& i : list) sizes[d] += i.length();
    const Array next = Array::empty(sizes, out.dtype());
    std::int64_t at = 0;
    for (const Interval& i : list) {
      next.slice(d, at, i.length()).copy_(out.slice(d, i.lo, i.length()));
      at += i.length();
    }
    out = next;
  }
  return out;
}

bool equal_bits(const Array& a, const Array& b) {
  const Array x = a.contiguous();
  const Array y = b.contiguous();
  return a.sizes() == b.sizes() && std::memcmp(x.raw(), y.raw(), static_cast<std::size_t>(x.nbytes())) == 0;
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the published vectors") {
  std::uint32_t w[4];
  philox({0, 0}, 0, w);
  CHECK(std::vector<std::uint32_t>(w, w + 4) ==
        std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  philox({~0ULL, ~0ULL}, ~0ULL, w);
  CHECK(std::vector<std::uint32_t>(w, w + 4) ==
        std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0
  philox({0x299f31d0a4093822ULL, 0x0370734413198a2eULL}, 0x85a308d3243f6a88ULL, w);
  CHECK(std::vector<std::uint32_t>(w, w + 4) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("every instruction set that the machine has gives the same bits") {
  for (const detail::RngKernels& kernels : detail::machine_rng_kernels()) {
    INFO(kernels.name);
    std::vector<std::uint32_t> bulk(4 * 37);
    kernels.words(kKey, 0xfffffff5ULL, 37, bulk.data());
    for (std::uint64_t b = 0; b < 37; ++b) {
      std::uint32_t w[4];
      philox(kKey, 0xfffffff5ULL + b, w);
      REQUIRE(std::equal(w, w + 4, bulk.begin() + static_cast<std::ptrdiff_t>(4 * b)));
    }
    std::vector<float> x(bulk.size());
    std::vector<float> y(bulk.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 20.5F;
    const std::uint32_t limit = bulk[9];
    kernels.drop(y.data(), x.data(), bulk.data(), 147, limit, 1.3F);
    for (std::size_t i = 0; i < 147; ++i) REQUIRE(y[i] == (bulk[i] >= limit ? x[i] * 1.3F : 0.0F));
    REQUIRE(y[147] == 0);
  }
}

TEST_CASE("normal values have the same bits by every instruction set that the machine has") {
  // Ends of the logarithm's range and of every quadrant, then all that the generator gives.
  std::vector<std::uint32_t> words;
  for (const std::uint32_t a : {0U, 1U, 0xb504f332U, 0xb504f333U, 0x7fffffffU, 0x80000000U, 0xffffffffU})
    for (const std::uint32_t b :
         {0U, 0x1fffffffU, 0x20000000U, 0x5fffffffU, 0x60000000U, 0x80000000U, 0x9fffffffU, 0xa0000000U,
          0xc0000000U, 0xdfffffffU, 0xe0000000U, 0xffffffffU})
      words.insert(words.end(), {a, b});
  words.resize(words.size() + 4 * 2001);
  detail::baseline_rng_kernels().words(kKey, 77, 2001, words.data() + words.size() - 4 * 2001);
  for (const detail::RngKernels& kernels : detail::machine_rng_kernels())
    for (std::int64_t pairs = 1; pairs <= static_cast<std::int64_t>(words.size() / 2);
         pairs = 2 * pairs + 1) {
      INFO(kernels.name << ", " << pairs << " pairs");
      std::vector<double> values(2 * static_cast<std::size_t>(pairs) + 1, -7.0);
      kernels.normals(words.data(), pairs, {0.25, 3}, values.data());
      CHECK(values.back() == -7.0);  // nothing is written past them
      values.pop_back();
      for (std::size_t i = 0; i < values.size(); i += 2) {
        const detail::NormalPair z = detail::box_muller(words[i], words[i + 1]);
        REQUIRE(std::bit_cast<std::uint64_t>(values[i]) ==
                std::bit_cast<std::uint64_t>(std::fma(3.0, z.first, 0.25)));
        REQUIRE(std::bit_cast<std::uint64_t>(values[i + 1]) ==
                std::bit_cast<std::uint64_t>(std::fma(3.0, z.second, 0.25)));
      }
    }
}

TEST_CASE("the polynomials agree with the C library") {
  double worst_log = 0;
  double worst_sin = 0;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const std::uint32_t w = i * 2654435761U;
    const double u = (static_cast<double>(w) + 1.0) * 0x1p-32;
    const double want = std::log(u);
    worst_log = std::max(worst_log, std::abs(detail::log_exact(u) - want) / std::max(std::abs(want), 1e-300));
    const detail::SinCos sc = detail::sincos_turns(w);
    const long double angle = static_cast<long double>(w) * 0x1p-32L * 6.283185307179586476925286766559L;
    worst_sin = std::max(worst_sin, static_cast<double>(std::fabs(sc.sin - std::sin(angle))));
    worst_sin = std::max(worst_sin, static_cast<double>(std::fabs(sc.cos - std::cos(angle))));
  }
  CHECK(worst_log < 1e-15);
  CHECK(worst_sin < 4e-16);
  CHECK(detail::log_exact(1.0) == 0.0);
  CHECK(detail::log_exact(1.0 - 0x1p-32) == Approx(-0x1p-32).epsilon(1e-9));
}

TEST_CASE("bits are fixed for all time") {
  // Recorded once; a change of these values changes every trained model.
  std::vector<std::uint64_t> bits;
  for (std::int64_t i : {0, 1, 2, 3, 1000003}) bits.push_back(std::bit_cast<std::uint64_t>(normal(kKey, i)));
  for (std::int64_t i : {0, 5}) bits.push_back(std::bit_cast<std::uint64_t>(uniform_f64(kKey, i)));
  CHECK(bits == std::vector<std::uint64_t>{0xbfb7570e353ceef4ULL, 0xbfe467b938d887ddULL,
                                           0x3ffec4b929e95c48ULL, 0x3fee21a927c70a47ULL,
                                           0xbfe925393e92dc81ULL, 0x3fea012db6d95e76ULL,
                                           0x3fc2b74afd8ac7acULL});
}

TEST_CASE("uniform values") {
  const Array d = Array::empty({400000}, DType::F64);
  fill_uniform(d, whole_box({400000}), kKey, -1, 3);
  const std::vector<double> v = d.to_vector();
  const Moments m = moments(v);
  CHECK(m.mean == Approx(1).margin(0.01));
  CHECK(m.variance == Approx(16.0 / 12).epsilon(0.01));
  CHECK(*std::min_element(v.begin(), v.end()) >= -1);
  CHECK(*std::max_element(v.begin(), v.end()) < 3);
  CHECK(v[7] == std::fma(uniform_f64(kKey, 7), 4.0, -1.0));
  for (std::int64_t i = 0; i < 1000; ++i) {
    const double difference = uniform_f64(kKey, i) - static_cast<double>(uniform_f32(kKey, i));
    REQUIRE((difference >= 0 && difference < 0x1p-24));
  }
}

TEST_CASE("uniform values stay below the upper bound in every dtype") {
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    for (auto [lo, hi] :
         {std::pair{1.0, 2.0}, std::pair{-2.0, -1.0}, std::pair{-1.0, 0.0}, std::pair{0.3, 0.35}}) {
      const Array a = Array::empty({200000}, t);
      fill_uniform(a, whole_box({200000}), kKey, lo, hi);
      const std::vector<double> v = a.to_vector();
      CHECK(*std::max_element(v.begin(), v.end()) < hi);
      CHECK(*std::min_element(v.begin(), v.end()) >= lo - 0.01 * std::abs(lo));
    }
  }
}

TEST_CASE("normal values") {
  const Array d = Array::empty({400000}, DType::F64);
  fill_normal(d, whole_box({400000}), kKey, 0.5, 2);
  const std::vector<double> v = d.to_vector();
  const Moments m = moments(v);
  CHECK(m.mean == Approx(0.5).margin(0.015));
  CHECK(m.variance == Approx(4).epsilon(0.01));
  CHECK(m.skewness == Approx(0).margin(0.02));
  CHECK(m.kurtosis == Approx(3).epsilon(0.02));
  double neighbors = 0;
  for (std::size_t i = 1; i < v.size(); ++i) neighbors += (v[i] - 0.5) * (v[i - 1] - 0.5) / 4 / 400000;
  CHECK(neighbors == Approx(0).margin(0.01));
  CHECK(v[101] == std::fma(2.0, normal(kKey, 101), 0.5));
}

TEST_CASE("dtypes differ by rounding only") {
  const IndexBox box = whole_box({3000});
  const Array d = Array::empty({3000}, DType::F64);
  for (DType t : {DType::F32, DType::BF16, DType::F16}) {
    const Array a = Array::empty({3000}, t);
    fill_normal(d, box, kKey, 1, 3);
    fill_normal(a, box, kKey, 1, 3);
    CHECK(equal_bits(a, d.to(t)));
    fill_truncated_normal(d, box, kKey, {0, 1, -1, 1.5});
    fill_truncated_normal(a, box, kKey, {0, 1, -1, 1.5});
    CHECK(equal_bits(a, d.to(t)));
  }
}

TEST_CASE("truncated normal values") {
  const Array a = Array::empty({200000}, DType::F64);
  fill_truncated_normal(a, whole_box({200000}), kKey, {0, 1, -2, 2});
  const std::vector<double> v = a.to_vector();
  CHECK(*std::max_element(v.begin(), v.end()) <= 2);
  CHECK(*std::min_element(v.begin(), v.end()) >= -2);
  const Moments m = moments(v);
  CHECK(m.mean == Approx(0).margin(0.01));
  // 1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2))
  CHECK(m.variance == Approx(0.773741).epsilon(0.01));
  CHECK(std::count(v.begin(), v.end(), 2.0) == 0);
  // Within the bounds a value is the plain normal one.
  std::size_t plain = 0;
  for (std::int64_t i = 0; i < 1000; ++i) plain += v[static_cast<std::size_t>(i)] == normal(kKey, i) ? 1 : 0;
  CHECK(plain > 930);
  CHECK(plain < 980);
  const Array far = Array::empty({10}, DType::F32);
  fill_truncated_normal(far, whole_box({10}), kKey, {0, 1, 50, 60});
  CHECK(far.to_vector() == std::vector<double>(10, 50.0));
}

TEST_CASE("a box holds what the whole tensor holds there") {
  const Dims global{6, 10, 7};
  const std::vector<IndexBox> boxes{
      {global, {{{0, 6}}, {{0, 10}}, {{0, 7}}}, 0},
      {global, {{{2, 5}}, {{0, 10}}, {{0, 7}}}, 0},
      {global, {{{0, 6}}, {{3, 4}}, {{1, 6}}}, 0},
      {global, {{{1, 2}, {4, 6}}, {{0, 3}, {3, 3}, {8, 10}}, {{0, 2}, {5, 7}}}, 0},
      {global, {{{5, 6}, {0, 1}}, {{0, 10}}, {{0, 7}}}, 0},  // order of the list counts
      {global, {{}, {{0, 10}}, {{0, 7}}}, 0},
  };
  for (DType t : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    for (std::int64_t offset : {0, 1, 1000003}) {
      const Array whole[3] = {Array::empty(global, t), Array::empty(global, t), Array::empty(global, t)};
      const Array ones = Array::full(global, 1, t);
      fill_uniform(whole[0], whole_box(global, offset), kKey, -1, 1);
      fill_truncated_normal(whole[1], whole_box(global, offset), kKey, {0, 1, -1, 1});
      dropout_apply(whole[2], ones, whole_box(global, offset), kKey, 0.3);
      for (IndexBox box : boxes) {
        box.index_offset = offset;
        const Dims sizes = cut(ones, box).sizes();
        // Once row-major, once with the dims of memory the other way round.
        for (bool turned : {false, true}) {
          const Dims memory{sizes[2], sizes[1], sizes[0]};
          const Array a = turned ? Array::empty(memory, t).permute({2, 1, 0}) : Array::empty(sizes, t);
          fill_uniform(a, box, kKey, -1, 1);
          CHECK(equal_bits(a, cut(whole[0], box)));
          fill_truncated_normal(a, box, kKey, {0, 1, -1, 1});
          CHECK(equal_bits(a, cut(whole[1], box)));
          dropout_apply(a, Array::full({}, 1, t).expand(sizes), box, kKey, 0.3);
          CHECK(equal_bits(a, cut(whole[2], box)));
        }
      }
    }
  }
}

TEST_CASE("0-dim arrays, long rows and several threads") {
  const Array scalar = Array::empty({}, DType::F64);
  fill_normal(scalar, whole_box({}, 17), kKey, 0, 1);
  CHECK(scalar.at(0) == normal(kKey, 17));
  const int threads = thread_count();
  const Array one = Array::empty({3, 50001}, DType::F32);
  const Array two = Array::empty({3, 50001}, DType::F32);
  set_thread_count(1);
  fill_normal(one, whole_box({3, 50001}, 3), kKey, 0, 1);
  set_thread_count(3);
  fill_normal(two, whole_box({3, 50001}, 3), kKey, 0, 1);
  set_thread_count(threads);
  CHECK(equal_bits(one, two));
  CHECK(one.at(50000) == static_cast<float>(normal(kKey, 50003)));
}

TEST_CASE("dropout") {
  const Dims sizes{200, 500};
  const Array x = Array::empty(sizes, DType::F32);
  fill_normal(x, whole_box(sizes), {1, 1}, 0, 1);
  const Array y = Array::empty(sizes, DType::F32);
  dropout_apply(y, x, whole_box(sizes), kKey, 0.25);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const float want =
        bernoulli_keep(kKey, i, 0.25) ? static_cast<float>(x.at(i)) * static_cast<float>(1 / 0.75) : 0;
    REQUIRE(y.at(i) == want);
  }
  for (double v : y.to_vector()) kept += v != 0 ? 1 : 0;
  CHECK(static_cast<double>(kept) / 100000 == Approx(0.75).margin(0.01));
  const Array same = x.clone();
  dropout_apply(same, same, whole_box(sizes), kKey, 0.25);
  CHECK(equal_bits(same, y));
  dropout_apply(y, x, whole_box(sizes), kKey, 0);
  CHECK(equal_bits(y, x));
  dropout_apply(y, x, whole_box(sizes), kKey, 1);
  CHECK(equal_bits(y, Array::zeros(sizes, DType::F32)));
  const Array other = Array::empty(sizes, DType::F32);
  dropout_apply(other, x, whole_box(sizes), {kKey.seed, kKey.stream + 1}, 0.25);
  CHECK_FALSE(equal_bits(other, same));
}

TEST_CASE("wrong calls are refused, meta arrays are left alone, versions count") {
  const Array a = Array::zeros({4}, DType::F32);
  const auto v = a.version();
  CHECK_THROWS_AS(fill_uniform(Array::zeros({4}, DType::I32), whole_box({4}), kKey, 0, 1), Error);
  CHECK_THROWS_AS(fill_uniform(a, whole_box({5}), kKey, 0, 1), Error);
  CHECK_THROWS_AS(fill_uniform(a, whole_box({4}), kKey, 1, 1), Error);
  CHECK_THROWS_AS(fill_uniform(a, {{4}, {{{1, 5}}}, 0}, kKey, 0, 1), Error);
  CHECK_THROWS_AS(fill_normal(a, whole_box({4}), kKey, 0, -1), Error);
  CHECK_THROWS_AS(dropout_apply(a, a, whole_box({4}), kKey, 1.5), Error);
  CHECK_THROWS_AS(dropout_apply(a, Array::zeros({4}, DType::F64), whole_box({4}), kKey, 0.5), Error);
  CHECK(a.version() == v);
  fill_normal(a, whole_box({4}), kKey, 0, 1);
  CHECK(a.version() == v + 1);
  const Array meta = Array::empty({1 << 30, 1 << 10}, DType::F32, Device::Meta);
  fill_normal(meta, whole_box(meta.sizes()), kKey, 0, 1);
  dropout_apply(meta, meta, whole_box(meta.sizes()), kKey, 0.5);
  CHECK(meta.version() == 2);
}

TEST_CASE("dropout of a million floats", "[.][time]") {
  set_thread_count(1);
  const Dims sizes{1000, 1000};
  const Array x = Array::full(sizes, 1, DType::F32);
  const Array y = Array::zeros(sizes, DType::F32);
  auto time = [](auto f) {
    double best = 1e9;
    for (int i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      f();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best * 1e3;
  };
  const IndexBox whole = whole_box(sizes);
  IndexBox rows{{1000, 100000}, {{{0, 1000}}, {{501, 1501}}}, 0};
  WARN("dropout " << time([&] { dropout_apply(y, x, whole, kKey, 0.2); }) << " ms, in a box "
                  << time([&] { dropout_apply(y, x, rows, kKey, 0.2); }) << " ms, normal "
                  << time([&] { fill_normal(y, whole, kKey, 0, 1); }) << " ms, uniform "
                  << time([&] { fill_uniform(y, whole, kKey, 0, 1); }) << " ms");
}
