// Results that go past the caches: the bytes are those of ordinary stores.
#include <array>

#include "ops/cpu/block_sink.h"
#include "ops/cpu/channel_norm.h"
#include "ops/cpu/pointwise.h"
#include "ops/window/interpolate.h"
#include "runtime/cache_size.h"
#include "runtime/threads.h"
#include "tests/kernels_support.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

constexpr double kEps = 1e-3;

// From so many bytes on, until the end of the scope.
struct PastCachesFrom {
  explicit PastCachesFrom(std::int64_t bytes) { cpu::set_past_caches_from(bytes); }
  ~PastCachesFrom() { cpu::set_past_caches_from(0); }
  PastCachesFrom(const PastCachesFrom&) = delete;
  PastCachesFrom& operator=(const PastCachesFrom&) = delete;
};

// [N, C, S], channels innermost in memory or not.
Array map_of(const Dims& sizes, DType dtype, bool last) {
  if (!last) return Array::zeros(sizes, dtype);
  return Array::zeros({sizes[0], sizes[2], sizes[1]}, dtype).transpose(1, 2);
}
Array random_map(const Dims& sizes, DType dtype, bool last, Random& random) {
  const Array map = map_of(sizes, dtype, last);
  map.copy_(random_array(sizes, dtype, random));
  return map;
}

struct Norm {
  Array x, dy, weight, bias, stats, sums;
  cpu::ChannelGroups groups;
  bool last;

  Norm(const Dims& sizes, DType dtype, bool channels_last, Random& random)
      : x(random_map(sizes, dtype, channels_last, random)),
        dy(random_map(sizes, dtype, channels_last, random)),
        weight(random_array({sizes[1]}, dtype, random).clone()),
        bias(random_array({sizes[1]}, dtype, random).clone()),
        groups{true, 2, {}},
        last(channels_last) {
    for (std::int64_t c = 0; c < sizes[1]; ++c) groups.of_channel.push_back(2 * c / sizes[1]);
    const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
    stats = Array::zeros({4, groups.rows(sizes[0])}, wide);
    cpu::channel_moments({stats.slice(0, 0, 3), x, groups});
    cpu::finish_statistics({stats, 0.5 * static_cast<double>(sizes[1] * sizes[2])});
    sums = Array::zeros({2, stats.size(1)}, wide);
  }

  // y, the gradient, and the gradient in the place of dy.
  std::array<std::vector<double>, 3> results() const {
    const Array y = map_of(x.sizes(), x.dtype(), last);
    const Array dx = map_of(x.sizes(), x.dtype(), last);
    const Array in_place = map_of(x.sizes(), x.dtype(), last);
    in_place.copy_(dy);
    cpu::channel_norm({y, x, stats, weight, bias, kEps, groups, cpu::NormActivation::Silu});
    cpu::channel_norm_sums({sums, {}, {}, dy, x, stats, weight, kEps, groups});
    cpu::channel_norm_gradient({dx, dy, x, stats, weight, sums, kEps, groups});
    cpu::channel_norm_gradient({in_place, in_place, x, stats, weight, sums, kEps, groups});
    return {y.to_vector(), dx.to_vector(), in_place.to_vector()};
  }
};

}  // namespace

TEST_CASE("norms of any layout, past the caches") {
  Random random(seed());
  const int before = thread_count();
  for (const int threads : {1, 2})
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (const bool last : {false, true})
        for (const std::int64_t row : {3, 77, 5001}) {
          INFO(threads << " threads, " << name_of(dtype) << ", channels last " << last << ", rows of "
                       << row);
          set_thread_count(threads);
          const Norm norm({2, pick(random, 2, 40), row}, dtype, last, random);
          const auto ordinary = norm.results();
          const PastCachesFrom all(1);
          const auto past = norm.results();
          CHECK(past == ordinary);
          CHECK(past[1] == past[2]);
        }
  set_thread_count(before);
}

TEST_CASE("pointwise functions of long and short runs, past the caches") {
  Random random(seed());
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (int trial = 0; trial < 12; ++trial) {
      // Rows of a matrix, which is a run of its own or part of one.
      const std::int64_t columns = pick(random, 1, 4) == 1 ? 40000 : pick(random, 900, 3000);
      const std::int64_t wide = columns + pick(random, 0, 3);
      const auto matrix = [&] { return random_array({3, wide}, dtype, random).clone().slice(1, 0, columns); };
      const std::array<Array, 3> out{matrix(), matrix(), matrix()};
      const Array a = matrix();
      const Array b =
          coin(random) ? matrix() : random_array({1, columns}, dtype, random).expand({3, columns});
      INFO(name_of(dtype) << " rows of " << columns << " in " << wide);
      const auto run = [&] {
        out[2].copy_(a);
        cpu::unary({out[0], a, cpu::UnaryOp::Tanh});
        cpu::binary({out[1], a, b, cpu::BinaryOp::Add});
        cpu::binary({out[2], out[2], b, cpu::BinaryOp::Add});
        return std::array{out[0].to_vector(), out[1].to_vector(), out[2].to_vector()};
      };
      const auto ordinary = run();
      for (const Array& o : out) o.fill_(7);
      const PastCachesFrom all(1);
      CHECK(run() == ordinary);
    }
}

TEST_CASE("interpolation, past the caches") {
  Random random(seed());
  for (const DType dtype : {DType::F32, DType::F64})
    for (const bool last : {false, true}) {
      const Dims sizes{2, pick(random, 2, 20), pick(random, 3, 20), pick(random, 3, 40)};
      const Array flat = random_map({sizes[0], sizes[1], sizes[2] * sizes[3]}, dtype, last, random);
      const Array x = flat.as_strided(
          sizes, {flat.stride(0), flat.stride(1), flat.stride(2) * sizes[3], flat.stride(2)}, flat.offset());
      const auto run = [&] {
        const InterpolateOptions twice{.scale_factor = {2, 2}, .mode = InterpolateMode::Bilinear};
        return interpolate(Tensor(x), twice).local().to_vector();
      };
      const auto ordinary = run();
      const PastCachesFrom all(1);
      CHECK(run() == ordinary);
    }
}

TEST_CASE("copies past the caches begin and end anywhere, and touch nothing else") {
  std::array<char, 512> from{};
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 1);
  for (const std::int64_t start : {0, 1, 31, 63, 64, 65, 100})
    for (const std::int64_t length : {0, 1, 33, 63, 64, 65, 128, 200, 300}) {
      alignas(64) std::array<char, 512> to{};
      stream_copy(to.data() + start, from.data() + 3, length);
      stream_fence();
      std::array<char, 512> expected{};
      std::copy_n(from.begin() + 3, length, expected.begin() + start);
      INFO(length << " bytes from " << start);
      CHECK(to == expected);
    }
}

TEST_CASE("results go past the caches where they, or what they are part of, are as large as these") {
  const Array large = Array::zeros({1 << 16}, DType::F32);
  const Array part = large.slice(0, 64, 128);
  const Array small = Array::zeros({1 << 14}, DType::F32);
  const PastCachesFrom quarter_mib(large.nbytes());
  CHECK(cpu::past_caches(large, {&small}));
  CHECK(cpu::past_caches(part, {&small}));
  CHECK(!cpu::past_caches(small, {&large}));
  CHECK(!cpu::past_caches(large, {&small, &large}));  // in place
  CHECK(cpu::past_caches(large, {&part}));
  cpu::set_past_caches_from(0);
  CHECK(last_level_cache() >= large.nbytes());
  CHECK(!cpu::past_caches(small, {}));
}
