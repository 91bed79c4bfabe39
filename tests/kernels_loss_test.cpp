// Losses of pairs and of classes against double loops, whole and in parts.
#include <fmt/core.h>

#include <limits>

#include "ops/cpu/class_loss.h"
#include "ops/cpu/pair_loss.h"
#include "runtime/threads.h"
#include "tests/kernels_support.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

using cpu::PairLoss;
using cpu::PairPart;

DType accumulator_of(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

struct Point {
  double x, t, p, a;  // prediction, target, weight of positive targets, parameter
};

double pair_value(PairLoss loss, const Point& at) {
  const auto [x, t, p, a] = at;
  const double d = x - t;
  const double log_sigmoid = std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
  switch (loss) {
    case PairLoss::Square:
      return d * d;
    case PairLoss::Absolute:
      return std::abs(d);
    case PairLoss::SmoothL1:
      return std::abs(d) < a ? d * d / (2 * a) : std::abs(d) - a / 2;
    case PairLoss::Huber:
      return std::abs(d) < a ? d * d / 2 : a * (std::abs(d) - a / 2);
    case PairLoss::Likelihood:
      return -t * x;
    case PairLoss::Entropy:
      return -(t * std::log(x) + (1 - t) * std::log1p(-x));
    case PairLoss::LogitEntropy:
      return -(p * t * log_sigmoid + (1 - t) * (log_sigmoid - x));
    case PairLoss::Divergence:
      return t * (std::log(t) - x);
    default:
      return std::exp(t) * (t - x);
  }
}

// By central differences, which is enough to tell a wrong formula.
double pair_slope(PairLoss loss, bool by_input, const Point& at) {
  const double h = 1e-6;
  Point up = at;
  Point down = at;
  (by_input ? up.x : up.t) += h;
  (by_input ? down.x : down.t) -= h;
  return (pair_value(loss, up) - pair_value(loss, down)) / (2 * h);
}

Array in_range(const Array& x, double lo, double hi) {  // from (-2, 2)
  std::vector<double> v = x.to_vector();
  for (double& e : v) e = lo + (hi - lo) * (e + 2) / 4;
  x.copy_(Array::from(v, x.sizes(), x.dtype()));
  return x;
}

void check_pair(PairLoss loss, DType dtype, const Dims& sizes, Random& random) {
  const bool chances = loss == PairLoss::Entropy || loss == PairLoss::Divergence;
  const bool weighted = loss == PairLoss::LogitEntropy && coin(random);
  const double alpha = 0.7;
  const double scale = 0.25;
  const Array x = in_range(random_array(sizes, dtype, random), chances ? 0.1 : -3, chances ? 0.9 : 3);
  const Array t = in_range(random_array(sizes, dtype, random), chances ? 0.1 : -2, chances ? 0.9 : 2);
  const Array p = weighted ? random_array(sizes, dtype, random, 2.0, true) : Array();
  INFO("loss " << static_cast<int>(loss) << " " << name_of(dtype) << " " << sizes.str() << " weighted "
               << weighted);
  const std::vector<double> xv = x.to_vector();
  const std::vector<double> tv = t.to_vector();
  const std::vector<double> pv = weighted ? p.to_vector() : std::vector<double>(xv.size(), 1.0);
  const double e = epsilon(dtype);
  double total = 0;
  double size = 0;
  for (const PairPart part : {PairPart::Value, PairPart::ByInput, PairPart::ByTarget}) {
    std::vector<double> want;
    for (std::size_t i = 0; i < xv.size(); ++i) {
      const bool near_kink =
          std::abs(std::abs(xv[i] - tv[i]) - alpha) < 2e-6 || std::abs(xv[i] - tv[i]) < 2e-6;
      const Point at{xv[i], tv[i], pv[i], alpha};
      const double v =
          part == PairPart::Value ? pair_value(loss, at) : pair_slope(loss, part == PairPart::ByInput, at);
      want.push_back(near_kink ? std::numeric_limits<double>::quiet_NaN() : v * scale);
      if (part == PairPart::Value) total += v * scale, size += std::abs(v * scale);
    }
    const Array out = awkward(sizes, dtype, random);
    cpu::pair_loss({out, x, t, p, {}, {loss, alpha}, part, scale});
    std::vector<double> got = out.to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::isnan(want[i])) got[i] = want[i];
    check_close(got, want, {8 * e, 8 * e * (1 + largest(want)) + (part == PairPart::Value ? 0 : 1e-8)});
  }
  const Array sum = Array::zeros({}, dtype);
  cpu::pair_loss_sum({sum, x, t, p, {}, {loss, alpha}, PairPart::Value, scale});
  CHECK(std::abs(sum.at(0) - total) <= (8 * e + 1e-13) * (size + 1));
  // A factor is one number of the same type.
  const Array factor = Array::full({}, 3.0, dtype);
  const Array once = Array::empty(sizes, dtype);
  const Array thrice = Array::empty(sizes, dtype);
  cpu::pair_loss({once, x, t, p, {}, {loss, alpha}, PairPart::ByInput, 3.0});
  cpu::pair_loss({thrice, x, t, p, factor, {loss, alpha}, PairPart::ByInput, 1.0});
  CHECK(once.to_vector() == thrice.to_vector());
}

struct ClassCase {
  std::int64_t samples, classes, space;
  DType dtype;
  bool logits;
  double smoothing;
  bool weighted;
  std::string str() const {
    return fmt::format("{} [{}, {}, {}] logits {} smoothing {} weights {}", name_of(dtype), samples, classes,
                       space, logits, smoothing, weighted);
  }
};

// Some positions with a target that does not count.
struct ClassValues {
  Array x, target, weight, dy;
  ClassValues(const ClassCase& c, Random& random)
      : x(random_array({c.samples, c.classes, c.space}, c.dtype, random, 4.0).clone()),
        target(Array::empty({c.samples, c.space}, DType::I64)),
        weight(c.weighted
                   ? in_range(random_array({c.classes}, accumulator_of(c.dtype), random), 0.2, 2).clone()
                   : Array()),
        dy(random_array({c.samples, c.space}, c.dtype, random).clone()) {
    for (std::int64_t i = 0; i < target.numel(); ++i)
      target.data<std::int64_t>()[i] = pick(random, 0, 4) == 0 ? -7 : pick(random, 0, c.classes - 1);
  }
};

struct ClassReference {
  std::vector<double> losses, dx;
  double loss = 0, weight = 0;
  ClassReference(const ClassCase& c, const ClassValues& v) {
    const std::vector<double> x = v.x.to_vector();
    const std::vector<double> dy = v.dy.to_vector();
    const auto n = static_cast<std::size_t>(c.classes);
    const std::vector<double> w = c.weighted ? v.weight.to_vector() : std::vector<double>(n, 1.0);
    dx.assign(x.size(), 0.0);
    for (std::int64_t r = 0; r < c.samples * c.space; ++r) {
      const std::int64_t y = v.target.data<std::int64_t>()[r];
      losses.push_back(0);
      if (y < 0) continue;
      const auto at = [&](std::size_t k) {
        return static_cast<std::size_t>(r / c.space * c.classes * c.space + r % c.space) +
               k * static_cast<std::size_t>(c.space);
      };
      double top = x[at(0)];
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) top = std::max(top, x[at(k)]);
      for (std::size_t k = 0; k < n; ++k) sum += std::exp(x[at(k)] - top);
      const double lse = c.logits ? top + std::log(sum) : 0;
      for (std::size_t k = 0; k < n; ++k) {
        const bool here = k == static_cast<std::size_t>(y);
        const double share =
            (here ? 1 - c.smoothing : 0) * w[k] + c.smoothing / static_cast<double>(n) * w[k];
        losses.back() += share * (lse - x[at(k)]);
        // d(lse) falls on all classes, -1 on this one.
        dx[at(k)] -= dy[static_cast<std::size_t>(r)] * share;
        for (std::size_t j = 0; c.logits && j < n; ++j)
          dx[at(j)] += dy[static_cast<std::size_t>(r)] * share * std::exp(x[at(j)] - lse);
      }
      loss += losses.back();
      weight += w[static_cast<std::size_t>(y)];
    }
  }
};

// The classes dealt out to `parts` ranks, in any order, some with none.
std::vector<std::vector<std::int64_t>> dealt(Random& random, std::int64_t classes, std::int64_t parts) {
  std::vector<std::vector<std::int64_t>> out(static_cast<std::size_t>(parts));
  for (std::int64_t c = 0; c < classes; ++c)
    out[static_cast<std::size_t>(pick(random, 0, parts - 1))].push_back(c);
  return out;
}

cpu::ClassData part_of(const ClassCase& c, const ClassValues& v, const std::vector<std::int64_t>& own) {
  cpu::ClassData d;
  const auto n = static_cast<std::int64_t>(own.size());
  d.x = Array::empty({c.samples, n, c.space}, c.dtype);
  d.target = v.target;
  d.weight = v.weight;
  if (c.weighted) d.weight_here = Array::empty({n}, v.weight.dtype());
  d.here.assign(static_cast<std::size_t>(c.classes), -1);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t k = own[static_cast<std::size_t>(i)];
    d.here[static_cast<std::size_t>(k)] = i;
    d.x.slice(1, i, 1).copy_(v.x.slice(1, k, 1));
    if (c.weighted) d.weight_here.slice(0, i, 1).copy_(v.weight.slice(0, k, 1));
  }
  d.kind = {c.logits, c.classes, -7, c.smoothing};
  return d;
}

void check_classes(const ClassCase& c, std::int64_t parts, Random& random) {
  INFO(c.str() << " in " << parts << " parts");
  const ClassValues v(c, random);
  const ClassReference want(c, v);
  const auto owners = dealt(random, c.classes, parts);
  std::vector<cpu::ClassData> data;
  for (const auto& own : owners) data.push_back(part_of(c, v, own));
  if (parts == 1) {
    data[0].here.clear();
    data[0].weight_here = data[0].weight;
  }
  const DType acc = accumulator_of(c.dtype);
  const Array all = Array::empty({parts, data[0].kind.terms(), c.samples, c.space}, acc);
  for (std::int64_t p = 0; p < parts; ++p) {
    const Array own = Array::empty({all.size(1), c.samples, c.space}, acc);
    cpu::class_rows({own, data[static_cast<std::size_t>(p)]});
    all.slice(0, p, 1).copy_(own.unsqueeze(0));
  }
  const Array losses = Array::empty({c.samples, c.space}, c.dtype);
  const Array lse = Array::empty({c.samples, c.space}, acc);
  const Array sums = Array::empty({4}, DType::F64);
  cpu::class_loss({losses, lse, sums, all, data[0]});
  const double e = epsilon(c.dtype);
  const double fine = 20 * epsilon(acc);
  check_close(losses.to_vector(), want.losses, {4 * e, fine * (1 + largest(want.losses))});
  CHECK(sums.at(0) == 0);
  const double n = static_cast<double>(c.samples * c.space) + 1;
  CHECK(std::abs(sums.at(2) - want.loss) <= fine * n * (1 + largest(want.losses)));
  CHECK(std::abs(sums.at(3) - want.weight) <= fine * n);

  const Array total = Array::full({}, 2.0, DType::F64);
  std::vector<double> got(want.dx.size(), 0.0);
  for (std::int64_t p = 0; p < parts; ++p) {
    const cpu::ClassData& d = data[static_cast<std::size_t>(p)];
    const Array dx = Array::empty(d.x.sizes(), c.dtype);
    cpu::class_loss_gradient({dx, v.dy, lse, total, d});
    const std::vector<double> own = dx.to_vector();
    const std::int64_t count = d.x.size(1);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t k =
          owners[static_cast<std::size_t>(p)][static_cast<std::size_t>(at / c.space % count)];
      got[static_cast<std::size_t>((at / (c.space * count) * c.classes + k) * c.space + at % c.space)] =
          2 * own[i];
    }
  }
  check_close(got, want.dx, {6 * e, 8 * e * (1 + largest(want.dx))});
}

}  // namespace

TEST_CASE("losses of pairs and their derivatives, any layout") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int loss = 0; loss < static_cast<int>(PairLoss::kCount); ++loss)
        for (int trial = 0; trial < 4; ++trial)
          check_pair(static_cast<PairLoss>(loss), dtype,
                     random_sizes(random, static_cast<int>(pick(random, 0, 3)), trial == 0 ? 40 : 7), random);
    check_pair(PairLoss::LogitEntropy, DType::F32, {5, 9000}, random);
    check_pair(PairLoss::Square, DType::F16, {3, 0}, random);
  });
}

TEST_CASE("losses of classes, whole and in parts, rows along or across memory") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 14; ++trial) {
        const bool logits = pick(random, 0, 3) > 0;
        const ClassCase c{pick(random, 0, 6),
                          pick(random, 1, 40),
                          trial % 2 == 0 ? 1 : pick(random, 0, 30),
                          dtype,
                          logits,
                          logits && coin(random) ? 0.2 : 0.0,
                          coin(random)};
        check_classes(c, pick(random, 1, 4), random);
      }
    check_classes({3, 5, 1200, DType::F32, true, 0.1, true}, 2, random);
    check_classes({70, 700, 1, DType::F32, true, 0.0, false}, 1, random);
  });
}

TEST_CASE("a target that is no class is told, the first one") {
  const Array x = Array::zeros({3, 2, 1}, DType::F32);
  cpu::ClassData d{
      x, Array::from(std::vector<double>{1, 5, -2}, {3, 1}, DType::I64), {}, {}, {}, {true, 2, -100, 0.0}};
  const Array parts = Array::empty({1, 3, 3, 1}, DType::F32);
  cpu::class_rows({parts.reshape({3, 3, 1}), d});
  const Array sums = Array::empty({4}, DType::F64);
  cpu::class_loss({{}, Array::empty({3, 1}, DType::F32), sums, parts, d});
  CHECK(sums.at(0) == 1);
  CHECK(sums.at(1) == 5);
}

TEST_CASE("sums of losses do not depend on the number of threads") {
  Random random(seed());
  const int before = thread_count();
  const Array x = random_array({300, 700}, DType::F32, random).clone();
  const Array t = random_array({300, 700}, DType::F32, random).clone();
  const ClassCase c{9000, 4, 3, DType::F32, true, 0.0, false};
  const ClassValues v(c, random);
  const cpu::ClassData d{v.x, v.target, {}, {}, {}, {true, 4, -7, 0.0}};
  std::vector<double> results;
  for (int threads : {1, 2}) {
    set_thread_count(threads);
    const Array sum = Array::empty({}, DType::F32);
    cpu::pair_loss_sum({sum, x, t, {}, {}, {PairLoss::SmoothL1, 0.5}});
    results.push_back(sum.at(0));
    const Array parts = Array::empty({1, 3, c.samples, c.space}, DType::F32);
    cpu::class_rows({parts.reshape({3, c.samples, c.space}), d});
    const Array sums = Array::empty({4}, DType::F64);
    cpu::class_loss({{}, Array::empty({c.samples, c.space}, DType::F32), sums, parts, d});
    results.push_back(sums.at(2));
  }
  set_thread_count(before);
  CHECK(results[0] == results[2]);
  CHECK(results[1] == results[3]);
}

TEST_CASE("values outside [0, 1] are found") {
  const auto fault = [](std::vector<double> x, std::vector<double> t) {
    const Array out = Array::empty({1}, DType::F64);
    const Dims sizes{static_cast<std::int64_t>(x.size())};
    cpu::unit_range({out, Array::from(x, sizes, DType::F32), Array::from(t, sizes, DType::F32)});
    return out.at(0);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(fault({0, 1, 0.5}, {1, 0, 0.2}) == 0);
  CHECK(fault({0, 1.01, 0.5}, {1, 0, 2}) == 1);
  CHECK(fault({0, -1e-6}, {1, 0}) == 1);
  CHECK(fault({nan, 1}, {1, 0}) == 1);
  CHECK(fault({0, 1}, {1, -3}) == 2);
  CHECK(fault({}, {}) == 0);
}
