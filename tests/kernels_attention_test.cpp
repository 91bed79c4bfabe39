// Attention against double loops: forward, in blocks with a running softmax, and backward.
#include "tests/kernels_support.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "ops/cpu/attention.h"
#include "runtime/rng.h"
#include "runtime/threads.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

DType accumulator(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

struct Case {
  std::int64_t n = 1, h = 2, hk = 2, rows = 5, keys = 5, d = 8, dv = 8;
  DType dtype = DType::F32;
  bool causal = false;
  bool positions = false;
  int mask = 0;  // 0 none, 1 bool, 2 added
  double drop = 0;

  std::string text() const {
    return fmt::format("n {} h {} hk {} rows {} keys {} d {} dv {} {} causal {} positions {} mask {} drop {}",
                       n, h, hk, rows, keys, d, dv, name_of(dtype), causal, positions, mask, drop);
  }
};

// [N, H, L, D] with stride 1 in the last dim, otherwise in a random order with gaps.
Array random_heads(const Dims& sizes, DType dtype, Random& random) {
  const Array base = coin(random)
                         ? Array::zeros({sizes[0], sizes[2], sizes[1], sizes[3] + 3}, dtype).transpose(1, 2)
                         : Array::zeros({sizes[0], sizes[1], sizes[2], sizes[3] + 1}, dtype);
  const Array x = base.slice(3, 0, sizes[3]);
  x.copy_(random_array(sizes, dtype, random, 1.5));
  return x;
}

// Everything of one case, and the reference's results.
struct Problem {
  Case c;
  double scale = 1.0;
  Array q, k, v, mask, dout;
  std::vector<std::int64_t> qp, kp;
  std::vector<std::int64_t> places[4];  // of the local weights in the whole, by dim
  cpu::AttentionMask m;
  std::vector<double> out, lse, delta, dq, dk, dv, dmask;
};

std::vector<std::int64_t> random_positions(std::int64_t n, Random& random) {
  std::vector<std::int64_t> p;
  for (std::int64_t i = 0; i < n; ++i) p.push_back(pick(random, 0, 2 * n));
  if (coin(random)) std::sort(p.begin(), p.end());
  return p;
}

std::size_t at(const Dims& sizes, std::int64_t a, std::int64_t b, std::int64_t i, std::int64_t j) {
  return static_cast<std::size_t>(((a * sizes[1] + b) * sizes[2] + i) * sizes[3] + j);
}

// Scores of one query row, -inf where masked.
std::vector<double> scores_of(const Problem& p, const std::vector<std::vector<double>>& values,
                              std::int64_t n, std::int64_t h, std::int64_t i) {
  const Case& c = p.c;
  const std::int64_t hk = h / (c.h / c.hk);
  std::vector<double> s;
  for (std::int64_t j = 0; j < c.keys; ++j) {
    double dot = 0;
    for (std::int64_t x = 0; x < c.d; ++x)
      dot += values[0][at(p.q.sizes(), n, h, i, x)] * values[1][at(p.k.sizes(), n, hk, j, x)];
    double score = dot * p.scale;
    if (c.mask == 1 && values[3][at(p.mask.sizes(), n, h, i, j)] == 0) score = -kInf;
    if (c.mask == 2) score += values[3][at(p.mask.sizes(), n, h, i, j)];
    const std::int64_t qi = c.positions ? p.qp[static_cast<std::size_t>(i)] : i;
    const std::int64_t kj = c.positions ? p.kp[static_cast<std::size_t>(j)] : j;
    if (c.causal && kj > qi) score = -kInf;
    s.push_back(score);
  }
  return s;
}

// What a weight counts after dropout.
double share_of(const Problem& p, const std::array<std::int64_t, 4>& weight) {
  const cpu::AttentionDropout& d = p.m.dropout;
  if (d.p == 0) return 1.0;
  std::int64_t index = 0;
  for (int dim = 0; dim < 4; ++dim) {
    const std::int64_t i = weight[static_cast<std::size_t>(dim)];
    index = index * d.sizes[dim] + (p.places[dim].empty() ? i : p.places[dim][static_cast<std::size_t>(i)]);
  }
  return bernoulli_keep(d.random, d.index_offset + index, d.p) ? 1 / (1 - d.p) : 0.0;
}

// The local weights lie at consecutive or scattered places of the whole.
void add_dropout(Problem& p, Random& random) {
  const Case& c = p.c;
  cpu::AttentionDropout& d = p.m.dropout;
  d.p = c.drop;
  d.random = {static_cast<std::uint64_t>(pick(random, 0, 1000)), 3, nullptr};
  d.index_offset = pick(random, 0, 9);
  const std::int64_t local[] = {c.n, c.h, c.rows, c.keys};
  for (int dim = 0; dim < 4; ++dim) {
    const std::int64_t all = 2 * local[dim] + 1;
    d.sizes.push_back(all);
    if (coin(random)) continue;
    std::vector<std::int64_t>& places = p.places[dim];
    for (std::int64_t i = 0; i < all; ++i) places.push_back(i);
    if (coin(random)) std::shuffle(places.begin(), places.end(), random);
    places.resize(static_cast<std::size_t>(local[dim]));
    if (coin(random)) places.back() = all - 1;
    d.positions[dim] = places.data();
  }
}

void reference_row(Problem& p, const std::vector<std::vector<double>>& values, std::int64_t n, std::int64_t h,
                   std::int64_t i) {
  const Case& c = p.c;
  const std::int64_t hk = h / (c.h / c.hk);
  const std::vector<double> s = scores_of(p, values, n, h, i);
  double m = -kInf, sum = 0;
  for (double x : s) m = std::max(m, x);
  for (double x : s) sum += m == -kInf ? 0.0 : std::exp(x - m);
  const double lse = sum == 0 ? -kInf : m + std::log(sum);
  p.lse.push_back(lse);
  const auto weight = [&](std::int64_t j) {
    return lse == -kInf ? 0.0 : std::exp(s[static_cast<std::size_t>(j)] - lse);
  };
  std::vector<double> share;
  for (std::int64_t j = 0; j < c.keys; ++j) share.push_back(share_of(p, {n, h, i, j}));
  const auto left = [&](std::int64_t j) { return weight(j) * share[static_cast<std::size_t>(j)]; };
  double delta = 0;
  for (std::int64_t x = 0; x < c.dv; ++x) {
    double o = 0;
    for (std::int64_t j = 0; j < c.keys; ++j) o += left(j) * values[2][at(p.v.sizes(), n, hk, j, x)];
    p.out[at(p.dout.sizes(), n, h, i, x)] = o;
    delta += o * values[4][at(p.dout.sizes(), n, h, i, x)];
  }
  p.delta.push_back(delta);
  for (std::int64_t j = 0; j < c.keys; ++j) {
    double dp = 0;
    for (std::int64_t x = 0; x < c.dv; ++x) {
      const double g = values[4][at(p.dout.sizes(), n, h, i, x)];
      dp += g * values[2][at(p.v.sizes(), n, hk, j, x)];
      p.dv[at(p.v.sizes(), n, hk, j, x)] += left(j) * g;
    }
    const double ds = weight(j) * (dp * share[static_cast<std::size_t>(j)] - delta);
    p.dmask.push_back(ds);
    for (std::int64_t x = 0; x < c.d; ++x) {
      p.dq[at(p.q.sizes(), n, h, i, x)] += p.scale * ds * values[1][at(p.k.sizes(), n, hk, j, x)];
      p.dk[at(p.k.sizes(), n, hk, j, x)] += p.scale * ds * values[0][at(p.q.sizes(), n, h, i, x)];
    }
  }
}

Problem make_problem(const Case& c, Random& random) {
  Problem p;
  p.c = c;
  p.scale = 1.0 / std::sqrt(static_cast<double>(c.d));
  p.q = random_heads({c.n, c.h, c.rows, c.d}, c.dtype, random);
  p.k = random_heads({c.n, c.hk, c.keys, c.d}, c.dtype, random);
  p.v = random_heads({c.n, c.hk, c.keys, c.dv}, c.dtype, random);
  p.dout = random_heads({c.n, c.h, c.rows, c.dv}, c.dtype, random);
  const Dims mask_sizes{c.n, c.h, c.rows, c.keys};
  if (c.mask == 1) p.mask = random_array(mask_sizes, DType::Bool, random, 1.0, true);
  if (c.mask == 2)
    p.mask = random_array(mask_sizes, coin(random) ? c.dtype : accumulator(c.dtype), random, 1.0, true);
  if (c.positions) {
    p.qp = random_positions(c.rows, random);
    p.kp = random_positions(c.keys, random);
  }
  p.m = {c.causal, c.positions ? p.qp.data() : nullptr, c.positions ? p.kp.data() : nullptr, p.mask};
  if (c.drop > 0) add_dropout(p, random);
  const std::vector<std::vector<double>> values{p.q.to_vector(), p.k.to_vector(), p.v.to_vector(),
                                                p.mask.defined() ? p.mask.to_vector() : std::vector<double>(),
                                                p.dout.to_vector()};
  p.out.resize(values[4].size());
  p.dq.resize(values[0].size());
  p.dk.resize(values[1].size());
  p.dv.resize(values[2].size());
  for (std::int64_t n = 0; n < c.n; ++n)
    for (std::int64_t h = 0; h < c.h; ++h)
      for (std::int64_t i = 0; i < c.rows; ++i) reference_row(p, values, n, h, i);
  return p;
}

void check_forward(const Problem& p, Random& random) {
  const Case& c = p.c;
  const DType acc = accumulator(c.dtype);
  const double e = epsilon(c.dtype);
  const double a = epsilon(acc);
  const Tolerance of_out{8 * e, 30 * a + 2 * e};
  const Array out = random_heads(p.dout.sizes(), c.dtype, random);
  const Array lse = Array::empty({c.n, c.h, c.rows}, acc);
  cpu::attention_forward({out, lse, p.q, p.k, p.v, p.scale, p.m});
  check_close(out.to_vector(), p.out, of_out);
  check_close(lse.to_vector(), p.lse, {16 * a, 30 * a});

  // The same in blocks of keys, in a random order, as a ring would.
  const Array o = random_heads(p.dout.sizes(), acc, random);
  const Array row_max = Array::empty({c.n, c.h, c.rows}, acc);
  const Array row_sum = Array::empty({c.n, c.h, c.rows}, acc);
  cpu::attention_init(o, row_max, row_sum);
  const std::int64_t cut = pick(random, 0, c.keys);
  std::vector<std::pair<std::int64_t, std::int64_t>> parts{{0, cut}, {cut, c.keys - cut}};
  if (coin(random)) std::swap(parts[0], parts[1]);
  std::vector<std::int64_t> count(static_cast<std::size_t>(std::max(c.keys, c.rows)));
  for (std::size_t i = 0; i < count.size(); ++i) count[i] = static_cast<std::int64_t>(i);
  for (const auto& [first, length] : parts) {
    cpu::AttentionMask m = p.m;
    m.k_positions = (c.positions ? p.kp.data() : count.data()) + first;
    m.dropout.positions[3] = (p.places[3].empty() ? count.data() : p.places[3].data()) + first;
    if (m.mask.defined()) m.mask = m.mask.slice(3, first, length);
    cpu::attention_accumulate(
        {p.q, p.k.slice(2, first, length), p.v.slice(2, first, length), o, row_max, row_sum, p.scale, m});
  }
  cpu::attention_finish({out, lse, o, row_max, row_sum});
  check_close(out.to_vector(), p.out, of_out);
  check_close(lse.to_vector(), p.lse, {16 * a, 30 * a});
}

void check_backward(const Problem& p, Random& random) {
  const Case& c = p.c;
  const DType acc = accumulator(c.dtype);
  const double e = epsilon(c.dtype);
  const double a = epsilon(acc);
  const Array out = Array::from(p.out, p.dout.sizes(), c.dtype);
  const Array lse = Array::from(p.lse, {c.n, c.h, c.rows}, acc);
  const Array delta = Array::empty({c.n, c.h, c.rows}, acc);
  cpu::attention_delta(delta, p.dout, out);
  check_close(delta.to_vector(), p.delta, {8 * e, 8 * e * static_cast<double>(c.dv)});
  delta.copy_(Array::from(p.delta, {c.n, c.h, c.rows}, acc));
  // Gradients are added to what is there.
  const Array dq = random_heads(p.q.sizes(), acc, random);
  const Array dk = random_heads(p.k.sizes(), acc, random);
  const Array dv = random_heads(p.v.sizes(), acc, random);
  for (const Array& x : {dq, dk, dv}) x.fill_(1.0);
  const Array dmask = Array::empty({c.n, c.h, c.rows, c.keys}, acc);
  cpu::attention_backward(
      {dq, dk, dv, coin(random) ? dmask : Array(), p.dout, p.q, p.k, p.v, lse, delta, p.scale, p.m});
  const auto check = [&](const Array& actual, std::vector<double> expected) {
    const double most = std::max(1.0, largest(expected));
    for (double& x : expected) x += 1.0;
    check_close(actual.to_vector(), expected, {30 * a, 60 * a * most});
  };
  check(dq, p.dq);
  check(dk, p.dk);
  check(dv, p.dv);
  // Or written, whatever is there.
  for (const Array& x : {dq, dk, dv}) x.fill_(std::nan(""));
  cpu::attention_backward(
      {dq, dk, dv, dmask, p.dout, p.q, p.k, p.v, lse, delta, p.scale, p.m, Array(), true, true});
  for (const auto& [got, expected] : {std::pair{dq, p.dq}, {dk, p.dk}, {dv, p.dv}})
    check_close(got.to_vector(), expected, {30 * a, 60 * a * std::max(1.0, largest(expected))});
  // A difference, from delta: where a row sees one key it is 0, of numbers that are not.
  check_close(dmask.to_vector(), p.dmask,
              {30 * a, 60 * a * std::max({1.0, largest(p.delta), largest(p.dmask)})});
}

Case random_case(Random& random, DType dtype) {
  Case c;
  c.dtype = dtype;
  c.n = pick(random, 1, 2);
  c.hk = pick(random, 1, 2);
  c.h = c.hk * pick(random, 1, 3);
  const bool large = pick(random, 0, 4) == 0;
  c.rows = pick(random, 1, large ? 420 : 30);
  c.keys = pick(random, 1, large ? 300 : 40);
  c.d = pick(random, 0, 2) == 0 ? 8 * pick(random, 1, 4) : pick(random, 1, large ? 20 : 70);
  c.dv = pick(random, 0, 3) == 0 ? pick(random, 1, 40) : c.d;
  c.causal = coin(random);
  c.positions = c.causal && coin(random);
  c.mask = static_cast<int>(pick(random, 0, 2));
  if (coin(random)) c.drop = 0.1 * static_cast<double>(pick(random, 1, 6));
  return c;
}

}  // namespace

TEST_CASE("attention agrees with double loops for random sizes, strides, masks and dropout") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 12; ++trial) {
        const Case c = random_case(random, dtype);
        INFO(c.text());
        const Problem p = make_problem(c, random);
        check_forward(p, random);
        check_backward(p, random);
      }
  });
}

TEST_CASE("attention with head sizes from 1 to 256") {
  Random random(seed());
  for_each_isa([&] {
    for (std::int64_t d : {1, 3, 16, 24, 63, 64, 80, 128, 200, 256}) {
      Case c;
      c.rows = 13;
      c.keys = 17;
      c.h = c.hk = 1;
      c.d = c.dv = d;
      INFO(c.text());
      const Problem p = make_problem(c, random);
      check_forward(p, random);
      check_backward(p, random);
    }
  });
}

TEST_CASE("attention without rows, without keys, and with rows that see no key") {
  for_each_isa([&] {
    const auto zeros = [](std::int64_t n) { return Array::zeros({1, 2, n, 8}, DType::F32); };
    const Array out = Array::full({1, 2, 3, 8}, 7.0, DType::F32);
    const Array lse = Array::full({1, 2, 3}, 7.0, DType::F32);
    cpu::attention_forward({out, lse, zeros(3), zeros(0), zeros(0), 1.0, {}});
    CHECK(largest(out.to_vector()) == 0.0);
    CHECK(lse.at(0) == -kInf);
    cpu::attention_forward(
        {zeros(0), Array::zeros({1, 2, 0}, DType::F32), zeros(0), zeros(4), zeros(4), 1.0, {}});
    const std::vector<std::int64_t> q{-1, -1, 5};
    const Array v = Array::full({1, 2, 4, 8}, 3.0, DType::F32);
    cpu::attention_forward({out, lse, zeros(3), zeros(4), v, 1.0, {true, q.data(), nullptr, {}}});
    CHECK(out.at(0) == 0.0);
    CHECK(lse.at(1) == -kInf);
    CHECK(out.at(16) == Approx(3.0));
    const Array dq = zeros(3), dk = zeros(4), dv = zeros(4);
    const Array dout = Array::full({1, 2, 3, 8}, 1.0, DType::F32);
    const Array delta = Array::zeros({1, 2, 3}, DType::F32);
    cpu::attention_backward(
        {dq, dk, dv, {}, dout, zeros(3), zeros(4), v, lse, delta, 1.0, {true, q.data(), nullptr, {}}});
    CHECK(dv.at(0) == Approx(0.25));  // from the one row that sees all four keys
  });
}

TEST_CASE("attention of rows that see a single key: the gradients of their scores are exactly 0") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 30; ++trial) {
      Case c =
          random_case(random, std::vector<DType>{DType::F32, DType::F64, DType::BF16, DType::F16}[trial % 4]);
      c.causal = c.positions = false;
      c.mask = 1;
      c.drop = 0;
      Problem p = make_problem(c, random);
      p.m.mask = p.mask = Array::zeros(p.mask.sizes(), DType::Bool);
      for (std::int64_t row = 0; row < c.n * c.h * c.rows; ++row)
        p.mask.data<bool>()[row * c.keys + pick(random, 0, c.keys - 1)] = true;
      INFO(c.text());
      const DType acc = accumulator(c.dtype);
      const Array out = random_heads(p.dout.sizes(), c.dtype, random);
      const Array lse = Array::empty({c.n, c.h, c.rows}, acc);
      const Array delta = Array::empty({c.n, c.h, c.rows}, acc);
      cpu::attention_forward({out, lse, p.q, p.k, p.v, p.scale, p.m});
      cpu::attention_delta(delta, p.dout, out);
      const Array dq = Array::zeros(p.q.sizes(), acc);
      const Array dk = Array::zeros(p.k.sizes(), acc);
      const Array dv = Array::zeros(p.v.sizes(), acc);
      const Array dmask = Array::empty(p.mask.sizes(), acc);
      cpu::attention_backward({dq, dk, dv, dmask, p.dout, p.q, p.k, p.v, lse, delta, p.scale, p.m});
      CHECK(largest(dmask.to_vector()) == 0.0);
      CHECK(largest(dq.to_vector()) == 0.0);
      CHECK(largest(dk.to_vector()) == 0.0);
      CHECK(largest(dv.to_vector()) > 0.0);
    }
  });
}

TEST_CASE("attention with large scores, and the same bits on one thread and two") {
  Random random(seed());
  const int before = thread_count();
  Case c;
  c.rows = 500;
  c.keys = 260;
  c.d = c.dv = 32;
  const Problem p = make_problem(c, random);
  for_each_isa([&] {
    std::vector<std::vector<double>> results;
    for (int threads : {1, 2}) {
      set_thread_count(threads);
      const Array out = Array::empty(p.dout.sizes(), DType::F32);
      cpu::attention_forward({out, {}, p.q, p.k, p.v, 60.0, {}});
      results.push_back(out.to_vector());
    }
    CHECK(results[0] == results[1]);
    CHECK(largest(results[0]) < 1.6);
  });
  set_thread_count(before);
}
