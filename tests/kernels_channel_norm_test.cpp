// Group, instance, batch and root-mean-square norm, forward and backward, against double loops.
#include "ops/cpu/channel_norm.h"

#include <fmt/core.h>

#include "ops/cpu/rms_norm.h"
#include "runtime/threads.h"
#include "tests/kernels_support.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

constexpr double kEps = 1e-3;

DType accumulator_of(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

struct Case {
  std::int64_t samples, channels, row;
  DType dtype;
  cpu::ChannelGroups groups;
  double mean = 0;
  bool affine = true;
  bool last = false;  // channels innermost in memory
  Dims sizes() const { return {samples, channels, row}; }
  std::string str() const {
    return fmt::format("{} [{}, {}, {}] {} groups, per sample {}, mean {}, channels last {}", name_of(dtype),
                       samples, channels, row, groups.groups, groups.per_sample, mean, last);
  }
  // The values of `a` in this order; samples may lie apart.
  Array in_order(const Array& a, bool apart = false) const {
    if (!last) return a.contiguous();
    const Array out =
        Array::empty({samples, row + (apart ? 1 : 0), channels}, dtype).slice(1, 0, row).transpose(1, 2);
    out.copy_(a);
    return out;
  }
};

// Each channel in any group: also groups without a channel, and neighbours apart.
cpu::ChannelGroups random_groups(Random& random, std::int64_t channels) {
  cpu::ChannelGroups g;
  g.per_sample = coin(random);
  g.groups = pick(random, 1, 4);
  for (std::int64_t c = 0; c < channels; ++c) g.of_channel.push_back(pick(random, 0, g.groups - 1));
  if (coin(random)) std::sort(g.of_channel.begin(), g.of_channel.end());
  return g;
}

// All of it in double, from the values as they are stored.
struct Reference {
  std::vector<double> y, dx, dw, db, mean, var, count;

  Reference(const Case& c, const std::vector<double>& x, const std::vector<double>& dy,
            const std::vector<double>& w, const std::vector<double>& b) {
    const auto rows = static_cast<std::size_t>(c.groups.rows(c.samples));
    mean.assign(rows, 0), var.assign(rows, 0), count.assign(rows, 0);
    const auto each = [&](const auto& f) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::int64_t row = static_cast<std::int64_t>(i) / c.row;
        f(i, static_cast<std::size_t>(row % c.channels),
          static_cast<std::size_t>(c.groups.row(row / c.channels, row % c.channels)));
      }
    };
    const double shift = c.mean;  // the sums keep their digits
    each([&](std::size_t i, std::size_t, std::size_t r) { mean[r] += x[i] - shift, count[r] += 1; });
    for (std::size_t r = 0; r < rows; ++r) mean[r] = count[r] > 0 ? mean[r] / count[r] + shift : 0;
    each([&](std::size_t i, std::size_t, std::size_t r) { var[r] += (x[i] - mean[r]) * (x[i] - mean[r]); });
    for (std::size_t r = 0; r < rows; ++r) var[r] /= std::max(count[r], 1.0);
    std::vector<double> g(rows, 0), gx(rows, 0);
    dw.assign(static_cast<std::size_t>(c.channels), 0), db = dw;
    y.resize(x.size()), dx.resize(x.size());
    const auto normal = [&](std::size_t i, std::size_t r) {
      return (x[i] - mean[r]) / std::sqrt(var[r] + kEps);
    };
    each([&](std::size_t i, std::size_t ch, std::size_t r) {
      y[i] = normal(i, r) * w[ch] + b[ch];
      dw[ch] += dy[i] * normal(i, r);
      db[ch] += dy[i];
      g[r] += dy[i] * w[ch];
      gx[r] += dy[i] * w[ch] * normal(i, r);
    });
    each([&](std::size_t i, std::size_t ch, std::size_t r) {
      dx[i] = (dy[i] * w[ch] - g[r] / count[r] - normal(i, r) * gx[r] / count[r]) / std::sqrt(var[r] + kEps);
    });
  }
};

// The statistics as the operation keeps them.
Array statistics_of(const Case& c, const Array& x, const std::vector<double>& count) {
  const std::int64_t rows = c.groups.rows(c.samples);
  const Array stats = Array::empty({4, rows}, accumulator_of(c.dtype));
  cpu::channel_moments({stats.slice(0, 0, 3), x, c.groups});
  std::vector<double> v = stats.to_vector();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    v[static_cast<std::size_t>(2 * rows + r)] /= std::max(count[i], 1.0);
    v[static_cast<std::size_t>(3 * rows + r)] = count[i];
  }
  stats.copy_(Array::from(v, {4, rows}, stats.dtype()));
  return stats;
}

void check_channel_norm(const Case& c, Random& random) {
  INFO(c.str());
  std::vector<double> values = random_array(c.sizes(), c.dtype, random, 2.0).to_vector();
  for (double& v : values) v += c.mean;
  const bool apart = c.row > 1 && c.channels > 1 && coin(random);
  const Array x = c.in_order(Array::from(values, c.sizes(), c.dtype), apart);
  const Array dy = c.in_order(random_array(c.sizes(), c.dtype, random), apart);
  const Array w = random_array({c.channels}, c.dtype, random).clone();
  const Array b = random_array({c.channels}, c.dtype, random).clone();
  const std::vector<double> ones(static_cast<std::size_t>(c.channels), 1.0);
  const std::vector<double> zeros(static_cast<std::size_t>(c.channels), 0.0);
  const Reference want(c, x.to_vector(), dy.to_vector(), c.affine ? w.to_vector() : ones,
                       c.affine ? b.to_vector() : zeros);
  const Array stats = statistics_of(c, x, want.count);
  const std::int64_t rows = stats.size(1);
  const std::vector<double> s = stats.to_vector();
  const double e = epsilon(c.dtype);
  const double fine = epsilon(accumulator_of(c.dtype));
  const double reference = (1 + std::abs(c.mean)) * 4e-15;  // of the sums above
  for (std::size_t r = 0; r < want.mean.size(); ++r) {
    const std::size_t n = static_cast<std::size_t>(rows);
    CHECK(std::abs(s[r] + s[n + r] - want.mean[r]) <= 2 * fine + reference);
    CHECK(std::abs(s[2 * n + r] - want.var[r]) <= (4 * fine + 4 * reference) * (1 + want.var[r]));
  }
  const Array y = c.in_order(Array::zeros(c.sizes(), c.dtype));
  const Array dx = c.in_order(Array::zeros(c.sizes(), c.dtype));
  const Array weight = c.affine ? w : Array();
  cpu::channel_norm({y, x, stats, weight, c.affine ? b : Array(), kEps, c.groups});
  check_close(y.to_vector(), want.y, {4 * e, 12 * e + 40 * reference});

  const Array dw = Array::empty({c.channels}, c.dtype);
  const Array db = Array::empty({c.channels}, c.dtype);
  const Array sums = Array::empty({2, rows}, stats.dtype());
  cpu::channel_norm_sums({sums, dw, db, dy, x, stats, weight, kEps, c.groups});
  cpu::channel_norm_gradient({dx, dy, x, stats, weight, sums, kEps, c.groups});
  const double n = static_cast<double>(c.samples * c.row);
  const double narrow = 1 / std::sqrt(kEps);
  check_close(dw.to_vector(), want.dw, {4 * e, 32 * fine * n + 40 * reference * n});
  check_close(db.to_vector(), want.db, {4 * e, 8 * fine * n + reference * n});
  check_close(dx.to_vector(), want.dx, {8 * e, 20 * e * (1 + largest(want.dx)) + 40 * narrow * reference});
}

void check_rms_norm(std::int64_t rows, std::int64_t cols, DType dtype, Random& random) {
  INFO(name_of(dtype) << " [" << rows << ", " << cols << "]");
  const bool affine = coin(random);
  const Array x = random_array({rows, cols}, dtype, random).clone();
  const Array dy = random_array({rows, cols}, dtype, random).clone();
  const Array w = affine ? random_array({cols}, dtype, random).clone() : Array();
  const Array y = Array::empty({rows, cols}, dtype);
  const Array dx = Array::empty({rows, cols}, dtype);
  const Array dw = Array::empty({cols}, dtype);
  const Array rstd = Array::empty({rows}, accumulator_of(dtype));
  const double n = static_cast<double>(cols);
  const Array squares = Array::empty({rows}, rstd.dtype());
  const Array dots = Array::empty({rows}, rstd.dtype());
  const bool apart = coin(random);  // sums first, as if others had a part in them
  cpu::row_squares({squares, x});
  cpu::row_dots({dots, dy, x, w});
  cpu::rms_norm({y, rstd, x, w, apart ? squares : Array(), n, kEps});
  cpu::rms_norm_backward({dx, dw, dy, x, rstd, w, apart ? dots : Array(), n});

  const std::vector<double> xv = x.to_vector();
  const std::vector<double> g = dy.to_vector();
  const std::vector<double> wv =
      affine ? w.to_vector() : std::vector<double>(static_cast<std::size_t>(cols), 1.0);
  std::vector<double> ey(xv.size()), edx(xv.size()), edw(static_cast<std::size_t>(cols), 0.0);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r * cols);
    double sum = 0;
    double dot = 0;
    for (std::size_t j = 0; j < edw.size(); ++j) {
      sum += xv[at + j] * xv[at + j];
      dot += g[at + j] * wv[j] * xv[at + j];
    }
    const double s = 1 / std::sqrt(sum / n + kEps);
    for (std::size_t j = 0; j < edw.size(); ++j) {
      ey[at + j] = xv[at + j] * s * wv[j];
      edw[j] += g[at + j] * xv[at + j] * s;
      edx[at + j] = s * g[at + j] * wv[j] - xv[at + j] * s * s * s * dot / n;
    }
  }
  const double e = epsilon(dtype);
  check_close(y.to_vector(), ey, {6 * e, 6 * e});
  check_close(dx.to_vector(), edx, {8 * e, 30 * e * (1 + largest(edx))});
  check_close(dw.to_vector(), edw, {4 * e, 8 * epsilon(rstd.dtype()) * static_cast<double>(rows)});
}

cpu::ChannelGroups batch_groups(std::int64_t channels) {
  cpu::ChannelGroups g{false, channels, {}};
  for (std::int64_t c = 0; c < channels; ++c) g.of_channel.push_back(c);
  return g;
}

}  // namespace

TEST_CASE("norms over channels, any groups, short and long rows") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 28; ++trial) {
        const bool last = trial >= 14;
        const std::int64_t channels = last && coin(random) ? pick(random, 10, 80) : pick(random, 0, 9);
        const std::int64_t row = trial % 3 == 0 ? pick(random, 60, 300) : pick(random, 0, 12);
        check_channel_norm({pick(random, 0, 6), channels, row, dtype, random_groups(random, channels), 0.0,
                            coin(random), last},
                           random);
      }
    check_channel_norm({1, 2, 40000, DType::F32, random_groups(random, 2)}, random);
    check_channel_norm({2, 1, 5000, DType::F16, random_groups(random, 1)}, random);
    check_channel_norm({300, 700, 1, DType::F32, batch_groups(700)}, random);
    check_channel_norm({9000, 3, 2, DType::BF16, batch_groups(3)}, random);
    check_channel_norm({40, 5, 70, DType::F32, batch_groups(5)}, random);
    for (const bool affine : {true, false}) {
      check_channel_norm({1, 32, 5000, DType::F32, random_groups(random, 32), 0.0, affine, true}, random);
      check_channel_norm({2, 33, 700, DType::F64, random_groups(random, 33), 0.0, affine, true}, random);
      check_channel_norm({3, 300, 70, DType::BF16, random_groups(random, 300), 0.0, affine, true}, random);
      check_channel_norm({1, 3, 70000, DType::F32, random_groups(random, 3), 0.0, affine, true}, random);
      check_channel_norm({50, 48, 40, DType::F32, batch_groups(48), 0.0, affine, true}, random);
    }
  });
}

// The gradient of a norm with an activation in two ways: slopes worked out twice, and kept in dx in between.
void check_kept_slopes(const Case& c, cpu::NormActivation activation, Random& random) {
  INFO(c.str() << " activation " << static_cast<int>(activation));
  const bool apart = c.row > 1 && c.channels > 1 && coin(random);
  const Array x = c.in_order(random_array(c.sizes(), c.dtype, random), apart);
  const Array dy = c.in_order(random_array(c.sizes(), c.dtype, random), apart);
  const Array w = random_array({c.channels}, c.dtype, random).clone();
  const Array b = random_array({c.channels}, c.dtype, random).clone();
  const std::int64_t rows = c.groups.rows(c.samples);
  const std::vector<double> count(static_cast<std::size_t>(rows),
                                  static_cast<double>(c.samples * c.channels * c.row));
  const Array stats = statistics_of(c, x, count);
  std::vector<std::vector<double>> dx;
  std::vector<std::vector<double>> dw;
  for (const bool kept : {false, true}) {
    const Array out = c.in_order(Array::zeros(c.sizes(), c.dtype), apart);
    const Array sums = Array::empty({2, rows}, stats.dtype());
    const Array weights = Array::empty({c.channels}, c.dtype);
    cpu::channel_norm_sums(
        {sums, weights, {}, dy, x, stats, w, kEps, c.groups, b, activation, kept ? out : Array()});
    cpu::channel_norm_gradient({out, kept ? out : dy, x, stats, w, sums, kEps, c.groups, b,
                                kept ? cpu::NormActivation::None : activation});
    dx.push_back(out.to_vector());
    dw.push_back(weights.to_vector());
  }
  const double e = epsilon(c.dtype);
  check_close(dx[1], dx[0], {8 * e, 20 * e * (1 + largest(dx[0]))});
  check_close(dw[1], dw[0], {8 * e, 32 * e * static_cast<double>(c.samples * c.row)});
}

TEST_CASE("the slopes of an activation after a norm may be kept") {
  Random random(seed());
  for_each_isa([&] {
    for (const auto activation : {cpu::NormActivation::Relu, cpu::NormActivation::Silu,
                                  cpu::NormActivation::Gelu, cpu::NormActivation::GeluTanh})
      for (DType dtype : {DType::F32, DType::F64})
        for (const bool last : {false, true}) {
          check_kept_slopes({2, 6, 90, dtype, random_groups(random, 6), 0, true, last}, activation, random);
          check_kept_slopes({5, 7, 3, dtype, random_groups(random, 7), 0, true, last}, activation, random);
          check_kept_slopes({1, 33, 3000, dtype, random_groups(random, 33), 0, true, last}, activation,
                            random);
        }
  });
  const Case half{2, 6, 90, DType::BF16, random_groups(random, 6)};
  const Array x = random_array(half.sizes(), half.dtype, random).clone();
  CHECK(!cpu::channel_norm_keeps_slopes(x, cpu::NormActivation::Gelu));
  CHECK_THROWS_WITH(cpu::channel_norm_sums({{},
                                            {},
                                            {},
                                            x,
                                            x,
                                            statistics_of(half, x, std::vector<double>(99, 1.0)),
                                            {},
                                            kEps,
                                            half.groups,
                                            {},
                                            cpu::NormActivation::Gelu,
                                            x}),
                    Catch::Contains("slopes are kept in f32 and f64"));
}

TEST_CASE("norms over channels keep their digits when the mean is 10000 times the deviation") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64}) {
      check_channel_norm({3, 4, 90, dtype, random_groups(random, 4), 1e4}, random);
      check_channel_norm({3, 4, 7, dtype, random_groups(random, 4), 1e4}, random);
      check_channel_norm({200, 6, 2, dtype, batch_groups(6), 1e4}, random);
      check_channel_norm({3, 4, 90, dtype, random_groups(random, 4), 1e4, true, true}, random);
      check_channel_norm({2, 70, 900, dtype, random_groups(random, 70), 1e4, true, true}, random);
      check_channel_norm({200, 6, 2, dtype, batch_groups(6), 1e4, true, true}, random);
    }
  });
}

// Variances of a map whose rows come from two levels, the second from row `step` on: what a first mean says
// of rows that lie far from it.
void check_two_levels(const Case& c, std::int64_t step, double level, Random& random) {
  INFO(c.str() << " level " << level << " from row " << step);
  std::vector<double> values = random_array(c.sizes(), c.dtype, random).to_vector();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (static_cast<std::int64_t>(i) % c.row >= step) values[i] += level;
  const Array x = c.in_order(Array::from(values, c.sizes(), c.dtype));
  const std::vector<double> ones(static_cast<std::size_t>(c.channels), 1.0);
  const std::vector<double> stored = x.to_vector();
  const Reference want(c, stored, stored, ones, ones);
  const std::vector<double> s = statistics_of(c, x, want.count).to_vector();
  const double e = epsilon(c.dtype);
  for (std::size_t r = 0; r < want.mean.size(); ++r) {
    CHECK(std::abs(s[r] + s[want.mean.size() + r] - want.mean[r]) <= 4 * e * (1 + std::abs(want.mean[r])));
    CHECK(std::abs(s[2 * want.mean.size() + r] - want.var[r]) <= 16 * e * (1 + want.var[r]));
  }
}

TEST_CASE("norms over channels of maps whose parts lie far apart") {
  Random random(seed());
  for_each_isa([&] {
    for (const bool last : {false, true})
      for (const std::int64_t channels : {16, 70, 300})
        for (const double level : {1.0, 300.0, 1e4}) {
          const std::int64_t row = 4000;
          const Case c{1, channels, row, DType::F32, batch_groups(channels), 0, true, last};
          check_two_levels(c, pick(random, 1, row - 1), level, random);
          check_two_levels(c, pick(random, 1, 300), level, random);
        }
  });
}

TEST_CASE("an infinite value leaves an infinite mean to its channel alone") {
  Random random(seed());
  const double inf = std::numeric_limits<double>::infinity();
  for_each_isa([&] {
    for (const bool last : {false, true})
      for (const std::int64_t at : {0, 2000, 3999}) {
        const Case c{1, 20, 4000, DType::F32, batch_groups(20), 0, true, last};
        std::vector<double> values = random_array(c.sizes(), c.dtype, random).to_vector();
        values[static_cast<std::size_t>(7 * c.row + at)] = -inf;
        const Array x = c.in_order(Array::from(values, c.sizes(), c.dtype));
        const std::vector<double> s = statistics_of(c, x, std::vector<double>(20, 4000.0)).to_vector();
        for (std::size_t r = 0; r < 20; ++r) {
          CHECK((r == 7 ? s[r] == -inf : std::abs(s[r]) < 1));
          CHECK(std::isfinite(s[40 + r]) == (r != 7));
        }
      }
  });
}

TEST_CASE("root-mean-square norm, sums of its own or given") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 8; ++trial)
        check_rms_norm(pick(random, 0, 90), pick(random, 1, 200), dtype, random);
    check_rms_norm(2, 20000, DType::F32, random);
    check_rms_norm(2000, 16, DType::F32, random);
  });
}

TEST_CASE("sums over channels do not depend on the number of threads") {
  Random random(seed());
  const int before = thread_count();
  for (const Case& c :
       {Case{33, 40, 3, DType::F32, batch_groups(40)}, Case{5, 8, 9000, DType::F32, batch_groups(8)},
        Case{5, 8, 9000, DType::F32, batch_groups(8), 0.0, true, true}}) {
    const Array x = c.in_order(random_array(c.sizes(), c.dtype, random));
    const Array dy = c.in_order(random_array(c.sizes(), c.dtype, random));
    std::vector<std::vector<double>> results;
    for (int threads : {1, 2}) {
      set_thread_count(threads);
      const Array stats =
          statistics_of(c, x, std::vector<double>(static_cast<std::size_t>(c.channels), 99.0));
      const Array sums = Array::empty({2, c.channels}, DType::F32);
      const Array dw = Array::empty({c.channels}, DType::F32);
      cpu::channel_norm_sums({sums, dw, {}, dy, x, stats, {}, kEps, c.groups});
      for (const Array& a : {stats, sums, dw}) results.push_back(a.to_vector());
    }
    for (std::size_t i = 0; i < 3; ++i) CHECK(results[i] == results[i + 3]);
  }
  set_thread_count(before);
}
