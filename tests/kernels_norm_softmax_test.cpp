// Softmax and layer norm, forward and backward, against double loops.
#include "tests/kernels_support.h"

#include <limits>

#include "ops/cpu/norm.h"
#include "ops/cpu/norm_parts.h"
#include "ops/cpu/softmax.h"
#include "runtime/threads.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

// Rows of x along `dim`, as indices into the row-major list of values.
std::vector<std::vector<std::size_t>> rows_of(const Dims& sizes, int dim) {
  std::int64_t inner = 1;
  for (int d = dim + 1; d < sizes.size(); ++d) inner *= sizes[d];
  const std::int64_t n = sizes[dim];
  const std::int64_t outer = numel_of(sizes) / std::max<std::int64_t>(1, n * inner);
  std::vector<std::vector<std::size_t>> rows;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      std::vector<std::size_t> row;
      for (std::int64_t k = 0; k < n; ++k) row.push_back(static_cast<std::size_t>((o * n + k) * inner + i));
      rows.push_back(row);
    }
  return rows;
}

void softmax_reference(std::vector<double>& v, const Dims& sizes, int dim, bool log) {
  for (const auto& row : rows_of(sizes, dim)) {
    double m = -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::size_t i : row) m = std::max(m, v[i]);
    for (std::size_t i : row) sum += std::exp(v[i] - m);
    for (std::size_t i : row) v[i] = log ? v[i] - m - std::log(sum) : std::exp(v[i] - m) / sum;
  }
}

void check_softmax(const Array& x, int dim, bool log, Random& random) {
  INFO(name_of(x.dtype()) << " " << x.sizes().str() << " strides " << x.strides().str() << " dim " << dim);
  const Dims& sizes = x.sizes();
  const double e = epsilon(x.dtype());
  const Array y = awkward(sizes, x.dtype(), random);
  cpu::softmax({y, x, coin(random) ? dim : dim - sizes.size(), log});
  std::vector<double> expected = x.to_vector();
  softmax_reference(expected, sizes, dim, log);
  check_close(y.to_vector(), expected, {8 * e, 8 * e});

  const Array dy = random_array(sizes, x.dtype(), random);
  const Array dx = awkward(sizes, x.dtype(), random);
  cpu::softmax_backward({dx, dy, y, dim, log});
  const std::vector<double> yv = y.to_vector();
  const std::vector<double> g = dy.to_vector();
  std::vector<double> wanted(g.size());
  for (const auto& row : rows_of(sizes, dim)) {
    double dot = 0;
    for (std::size_t i : row) dot += log ? g[i] : g[i] * yv[i];
    for (std::size_t i : row) wanted[i] = log ? g[i] - std::exp(yv[i]) * dot : yv[i] * (g[i] - dot);
  }
  check_close(dx.to_vector(), wanted, {8 * e, 16 * e * std::max(1.0, largest(wanted))});
}

struct NormCase {
  std::int64_t rows;
  std::int64_t cols;
  DType dtype;
  bool weight;
  bool bias;
  double mean;
};

// What layer_norm and its backward must give, the slow way in float64; `w` and `b` are ones and zeros where
// there are none.
struct NormReference {
  std::vector<double> y, mean, rstd, dx, dw, db;
};
NormReference norm_reference(const std::vector<double>& x, const std::vector<double>& g,
                             const std::vector<double>& w, const std::vector<double>& b, double eps) {
  const std::size_t cols = w.size();
  const double n = static_cast<double>(cols);
  NormReference e;
  e.y.resize(x.size());
  e.dx.resize(x.size());
  e.dw.resize(cols);
  e.db.resize(cols);
  for (std::size_t at = 0; at < x.size(); at += cols) {
    double var = 0;
    long double total = 0;  // of 10,000 ± 1: a sum in double would be off by as much as what is tested
    for (std::size_t j = 0; j < cols; ++j) total += x[at + j];
    const auto m = static_cast<double>(total / n);
    for (std::size_t j = 0; j < cols; ++j) var += (x[at + j] - m) * (x[at + j] - m) / n;
    const double s = 1.0 / std::sqrt(var + eps);
    e.mean.push_back(m);
    e.rstd.push_back(s);
    double mg = 0, mgx = 0;
    for (std::size_t j = 0; j < cols; ++j) {
      const double xh = (x[at + j] - m) * s;
      e.y[at + j] = xh * w[j] + b[j];
      e.dw[j] += g[at + j] * xh;
      e.db[j] += g[at + j];
      mg += g[at + j] * w[j] / n;
      mgx += g[at + j] * w[j] * xh / n;
    }
    for (std::size_t j = 0; j < cols; ++j)
      e.dx[at + j] = s * (g[at + j] * w[j] - mg - (x[at + j] - m) * s * mgx);
  }
  return e;
}

void check_layer_norm(const NormCase& c, Random& random) {
  INFO(name_of(c.dtype) << " [" << c.rows << ", " << c.cols << "] weight " << c.weight << " bias " << c.bias);
  const DType acc = c.dtype == DType::F64 ? DType::F64 : DType::F32;
  const double eps = 1e-5;
  const Dims sizes{c.rows, c.cols};
  std::vector<double> values = random_array(sizes, c.dtype, random, 2.0).to_vector();
  for (double& v : values) v += c.mean;
  const Array x = Array::from(values, sizes, c.dtype);
  const Array w = c.weight ? random_array({c.cols}, c.dtype, random).clone() : Array();
  const Array b = c.bias ? random_array({c.cols}, c.dtype, random).clone() : Array();
  const Array dy = random_array(sizes, c.dtype, random).clone();
  const std::vector<double> g = dy.to_vector();
  const auto or_all = [&](const Array& a, double value) {
    return a.defined() ? a.to_vector() : std::vector<double>(static_cast<std::size_t>(c.cols), value);
  };
  const NormReference want = norm_reference(x.to_vector(), g, or_all(w, 1), or_all(b, 0), eps);

  const Array y = Array::empty(sizes, c.dtype);
  const Array mean = Array::empty({c.rows}, acc);
  const Array rstd = Array::empty({c.rows}, acc);
  cpu::layer_norm({y, mean, rstd, x, w, b, eps});
  const double e = epsilon(c.dtype);
  const double largest_rstd = largest(want.rstd);
  const double reference = 8 * std::abs(c.mean) * epsilon(DType::F64) * largest_rstd;  // of the sums above
  const double largest_y = largest(want.y);
  check_close(y.to_vector(), want.y, {12 * e, 12 * e * std::max(1.0, largest_y) + reference * largest_y});
  check_close(mean.to_vector(), want.mean, {4 * epsilon(acc), 4 * epsilon(acc)});
  check_close(rstd.to_vector(), want.rstd, {20 * epsilon(acc) + reference, 0.0});

  const Array dx = Array::empty(sizes, c.dtype);
  const Array dw = c.weight ? Array::empty({c.cols}, c.dtype) : Array();
  const Array db = c.bias ? Array::empty({c.cols}, c.dtype) : Array();
  cpu::layer_norm_backward({dx, dw, db, dy, x, mean, rstd, w});
  const double sum = static_cast<double>(c.rows);
  check_close(
      dx.to_vector(), want.dx,
      {12 * e, 20 * e * std::max(1.0, largest_rstd) * largest(g) + 10 * reference * largest(want.dx)});
  if (c.weight)
    check_close(dw.to_vector(), want.dw, {12 * e, (4 * epsilon(acc) + 2 * reference) * sum * 2 + e});
  if (c.bias) check_close(db.to_vector(), want.db, {12 * e, 4 * epsilon(acc) * sum + e});
}

// Rows cut in two: sums of both parts first, then the gradients of each.
void check_norm_parts(const NormCase& c, std::int64_t first, Random& random) {
  INFO(name_of(c.dtype) << " [" << c.rows << ", " << first << " + " << c.cols - first << "] weight "
                        << c.weight);
  const DType acc = c.dtype == DType::F64 ? DType::F64 : DType::F32;
  const Dims sizes{c.rows, c.cols};
  std::vector<double> values = random_array(sizes, c.dtype, random, 2.0).to_vector();
  for (double& v : values) v += c.mean;
  const Array x = Array::from(values, sizes, c.dtype);
  const Array dy = random_array(sizes, c.dtype, random).clone();
  const Array w = random_array({c.cols}, c.dtype, random).clone();
  const std::vector<double> ones(static_cast<std::size_t>(c.cols), 1.0);
  const NormReference want =
      norm_reference(x.to_vector(), dy.to_vector(), c.weight ? w.to_vector() : ones, ones, 1e-5);
  const Array mean = Array::from(want.mean, {c.rows}, DType::F64);
  const Array rstd = Array::from(want.rstd, {c.rows}, acc);
  const std::array<Interval, 2> cut{Interval{0, first}, Interval{first, c.cols}};
  const auto part = [](const Array& a, Interval i) {
    return a.slice(a.dim() - 1, i.lo, i.length()).contiguous();
  };
  const auto weight = [&](Interval i) { return c.weight ? part(w, i) : Array(); };
  std::vector<double> total(static_cast<std::size_t>(2 * c.rows), 0.0);
  for (const Interval i : cut) {
    const Array sums = Array::empty({2, c.rows}, acc);
    cpu::layer_norm_sums({sums, part(dy, i), part(x, i), mean, rstd, weight(i)});
    const std::vector<double> own = sums.to_vector();
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += own[k];
  }
  const Array dx = Array::empty(sizes, c.dtype);
  const Array dw = Array::empty({c.cols}, c.dtype);
  const Array db = Array::empty({c.cols}, c.dtype);
  for (const Interval i : cut) {
    const cpu::NormGradientArgs args{part(dx, i),
                                     part(dw, i),
                                     part(db, i),
                                     part(dy, i),
                                     part(x, i),
                                     mean,
                                     rstd,
                                     weight(i),
                                     Array::from(total, {2, c.rows}, acc),
                                     static_cast<double>(c.cols)};
    cpu::layer_norm_gradient(args);
    dx.slice(1, i.lo, i.length()).copy_(args.dx);
    dw.slice(0, i.lo, i.length()).copy_(args.dweight);
    db.slice(0, i.lo, i.length()).copy_(args.dbias);
  }
  const double e = epsilon(c.dtype);
  const double fine = epsilon(acc) + 8 * std::abs(c.mean) * epsilon(DType::F64);
  const double rows = static_cast<double>(c.rows);
  check_close(dx.to_vector(), want.dx,
              {12 * e, (20 * e + 20 * fine) * std::max(1.0, largest(want.rstd)) * largest(dy.to_vector())});
  check_close(dw.to_vector(), want.dw, {12 * e, 12 * fine * rows + e});
  check_close(db.to_vector(), want.db, {12 * e, 4 * epsilon(acc) * rows + e});
}

}  // namespace

TEST_CASE("softmax and log-softmax along any dim of any layout") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 45; ++trial) {
      const DType dtype = std::vector<DType>{DType::F32, DType::F64, DType::BF16,
                                             DType::F16}[static_cast<std::size_t>(trial % 4)];
      const int dims = static_cast<int>(pick(random, 1, 4));
      const Dims sizes = random_sizes(random, dims, trial % 4 == 0 ? 40 : 9);
      if (numel_of(sizes) > 40000) continue;
      const Array x = random_array(sizes, dtype, random, trial % 2 == 0 ? 3.0 : 30.0);
      check_softmax(x, static_cast<int>(pick(random, 0, dims - 1)), coin(random), random);
    }
    check_softmax(random_array({3, 1000}, DType::F32, random, 4.0), 1, false, random);
    check_softmax(random_array({1000, 3}, DType::F32, random, 4.0), 0, true, random);
    const Array none = Array::zeros({3, 0}, DType::F32);
    cpu::softmax({none, none, 1, false});
    cpu::softmax({none, none, 0, false});
  });
}

TEST_CASE("softmax with masked entries and large scores") {
  const double inf = std::numeric_limits<double>::infinity();
  const Array x =
      Array::from(std::vector<double>{0, -inf, 0, 1e4, 1e4, -1e4, -inf, -inf, -inf}, {3, 3}, DType::F32);
  const Array y = Array::empty({3, 3}, DType::F32);
  for_each_isa([&] {
    cpu::softmax({y, x, -1, false});
    const std::vector<double> v = y.to_vector();
    CHECK(std::vector<double>(v.begin(), v.begin() + 6) == std::vector<double>{0.5, 0, 0.5, 0.5, 0.5, 0});
    CHECK((std::isnan(v[6]) && std::isnan(v[8])));
  });
}

TEST_CASE("layer norm forward and backward, with and without weight and bias") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 8; ++trial)
        check_layer_norm({pick(random, 1, 90), pick(random, 8, 200), dtype, coin(random), coin(random), 0.0},
                         random);
    check_layer_norm({1, 1, DType::F64, true, true, 0.0}, random);
    check_layer_norm({0, 5, DType::F32, true, true, 0.0}, random);
    check_layer_norm({2000, 16, DType::F32, true, true, 0.0}, random);
  });
}

TEST_CASE("layer norm keeps its digits when the mean is 10000 times the deviation") {
  Random random(seed());
  for_each_isa([&] {
    check_layer_norm({20, 96, DType::F32, true, true, 1e4}, random);
    check_layer_norm({20, 96, DType::F64, true, true, 1e4}, random);
  });
}

TEST_CASE("layer norm of rows that are cut, far from zero too") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
      for (int trial = 0; trial < 8; ++trial) {
        const std::int64_t cols = pick(random, 8, 200);
        check_norm_parts({pick(random, 0, 90), cols, dtype, coin(random), true, 0.0}, pick(random, 0, cols),
                         random);
      }
    for (DType dtype : {DType::F32, DType::F64})
      check_norm_parts({20, 96, dtype, true, true, 1e4}, 31, random);
    check_norm_parts({2, 20000, DType::F32, true, true, 0.0}, 9000, random);
    check_norm_parts({3, 1, DType::F32, true, true, 0.0}, 1, random);
  });
}

TEST_CASE("gradients of layer norm do not depend on the number of threads") {
  Random random(seed());
  const int before = thread_count();
  const Dims sizes{3001, 96};
  const Array x = random_array(sizes, DType::F32, random).clone();
  const Array dy = random_array(sizes, DType::F32, random).clone();
  const Array mean = Array::empty({3001}, DType::F32);
  const Array rstd = Array::empty({3001}, DType::F32);
  const Array y = Array::empty(sizes, DType::F32);
  cpu::layer_norm({y, mean, rstd, x, {}, {}, 1e-5});
  std::vector<std::vector<double>> results;
  for (int threads : {1, 2}) {
    set_thread_count(threads);
    const Array dx = Array::empty(sizes, DType::F32);
    const Array dw = Array::empty({96}, DType::F32);
    const Array db = Array::empty({96}, DType::F32);
    cpu::layer_norm_backward({dx, dw, db, dy, x, mean, rstd, {}});
    results.push_back(dw.to_vector());
    results.push_back(db.to_vector());
    results.push_back(dx.to_vector());
  }
  set_thread_count(before);
  for (std::size_t i = 0; i < 3; ++i) CHECK(results[i] == results[i + 3]);
}
