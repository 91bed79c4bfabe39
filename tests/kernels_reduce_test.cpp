// Reductions and moments against double loops.
#include "tests/kernels_support.h"

#include <limits>

#include "ops/cpu/reduce.h"
#include "runtime/threads.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::ReduceKind;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Sizes with a random subset of dims reduced to 1.
Dims reduced_sizes(const Dims& sizes, Random& random) {
  Dims out = sizes;
  for (int d = 0; d < sizes.size(); ++d)
    if (coin(random)) out[d] = 1;
  return out;
}

// For every element of x, the row-major index of its output.
std::vector<std::size_t> targets(const Dims& sizes, const Dims& out) {
  std::vector<std::size_t> result;
  const Dims strides = contiguous_strides(out);
  for (std::int64_t i = 0; i < numel_of(sizes); ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      at += out[d] == 1 ? 0 : rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    result.push_back(static_cast<std::size_t>(at));
  }
  return result;
}

double start(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::Sum:
      return 0.0;
    case ReduceKind::Max:
      return -kInf;
    case ReduceKind::Min:
      return kInf;
    default:
      return 1.0;
  }
}
void fold(ReduceKind kind, double& a, double x) {
  if (std::isnan(a)) return;
  switch (kind) {
    case ReduceKind::Sum:
      a += x;
      return;
    case ReduceKind::Max:
      a = std::isnan(x) ? x : std::max(a, x);
      return;
    case ReduceKind::Min:
      a = std::isnan(x) ? x : std::min(a, x);
      return;
    default:
      a *= x;
      return;
  }
}

void check_reduce(const Array& x, const Dims& out_sizes, ReduceKind kind, DType out_dtype, Random& random) {
  INFO("kind " << static_cast<int>(kind) << " " << name_of(x.dtype()) << " " << x.sizes().str() << " strides "
               << x.strides().str() << " to " << out_sizes.str());
  const Array out = awkward(out_sizes, out_dtype, random);
  cpu::reduce({out, x, kind});
  std::vector<double> expected(static_cast<std::size_t>(numel_of(out_sizes)), start(kind));
  const std::vector<double> values = x.to_vector();
  const std::vector<std::size_t> at = targets(x.sizes(), out_sizes);
  for (std::size_t i = 0; i < values.size(); ++i) fold(kind, expected[at[i]], values[i]);
  const double e = epsilon(out_dtype);
  check_close(out.to_vector(), expected, {2 * e, 2 * e + 1e-13 * static_cast<double>(values.size())});
}

}  // namespace

TEST_CASE("reductions agree with double loops for any dims and strides") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 60; ++trial) {
      const DType dtype = std::vector<DType>{DType::F32, DType::F64, DType::BF16,
                                             DType::F16}[static_cast<std::size_t>(trial % 4)];
      const Dims sizes = random_sizes(random, static_cast<int>(pick(random, 0, 4)), trial % 5 == 0 ? 40 : 12);
      const Array x = random_array(sizes, dtype, random, 1.5, trial % 4 == 0);
      for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min})
        check_reduce(x, reduced_sizes(sizes, random), kind, dtype, random);
    }
    const Array x = random_array({3, 4, 5}, DType::F32, random, 1.5);
    check_reduce(x, {3, 1, 1}, ReduceKind::Product, DType::F32, random);
    check_reduce(x, {1, 4, 5}, ReduceKind::Product, DType::F32, random);
  });
}

TEST_CASE("reductions of integers and bool") {
  Random random(seed());
  for (DType dtype : {DType::I64, DType::I32}) {
    const Array x = random_array({4, 7, 3}, dtype, random, 1.0);
    for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min})
      check_reduce(x, {4, 1, 3}, kind, dtype, random);
  }
  const Array b = random_array({5, 40}, DType::Bool, random, 1.0);
  check_reduce(b, {5, 1}, ReduceKind::Sum, DType::I64, random);
  check_reduce(b, {1, 40}, ReduceKind::Max, DType::Bool, random);
  check_reduce(random_array({5, 40}, DType::I32, random), {1, 1}, ReduceKind::Sum, DType::I64, random);
}

TEST_CASE("long sums keep their digits and do not depend on the number of threads") {
  Random random(seed());
  const int before = thread_count();
  for_each_isa([&] {
    for (const Dims& sizes : {Dims{1 << 20}, Dims{20011, 37}, Dims{37, 20011}}) {
      const Array x = random_array(sizes, DType::F32, random, 1.0);
      const std::vector<double> values = x.to_vector();
      double sum = 0;
      for (double v : values) sum += v;
      Dims out_sizes = Dims::filled(sizes.size(), 1);
      const Array one = Array::empty(out_sizes, DType::F32);
      const Array two = Array::empty(out_sizes, DType::F32);
      set_thread_count(1);
      cpu::reduce({one, x, ReduceKind::Sum});
      set_thread_count(2);
      cpu::reduce({two, x, ReduceKind::Sum});
      CHECK(one.at(0) == two.at(0));
      CHECK(one.at(0) == Approx(sum).epsilon(2e-7).margin(1e-7));
      if (sizes.size() < 2) continue;
      for (int kept : {0, 1}) {
        out_sizes = Dims::filled(2, 1);
        out_sizes[kept] = sizes[kept];
        const Array a = Array::empty(out_sizes, DType::F32);
        const Array b = Array::empty(out_sizes, DType::F32);
        set_thread_count(1);
        cpu::reduce({a, x, ReduceKind::Sum});
        set_thread_count(2);
        cpu::reduce({b, x, ReduceKind::Sum});
        CHECK(a.to_vector() == b.to_vector());
      }
    }
    set_thread_count(before);
  });
}

TEST_CASE("empty reductions give the neutral element, NaN reaches the result") {
  Random random(seed());
  for_each_isa([&] {
    for (ReduceKind kind : {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Product}) {
      const Array out = Array::empty({3, 1}, DType::F32);
      cpu::reduce({out, Array::zeros({3, 0}, DType::F32), kind});
      CHECK(out.to_vector() == std::vector<double>(3, start(kind)));
      cpu::reduce({Array::empty({0, 1}, DType::F32), Array::zeros({0, 4}, DType::F32), kind});
    }
    for (const Dims& sizes : {Dims{70, 3}, Dims{3, 70}}) {
      const Array x = Array::from(std::vector<double>(210, 1.0), sizes, DType::F32);
      x.data<float>()[100] = std::numeric_limits<float>::quiet_NaN();
      for (ReduceKind kind : {ReduceKind::Max, ReduceKind::Min})
        for (int kept : {0, 1}) {
          Dims out_sizes = Dims::filled(2, 1);
          out_sizes[kept] = sizes[kept];
          check_reduce(x, out_sizes, kind, DType::F32, random);
        }
    }
  });
}

TEST_CASE("moments are stable around a large mean") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64}) {
      for (int trial = 0; trial < 12; ++trial) {
        const Dims sizes = random_sizes(random, 3, 20);
        const Array x = random_array(sizes, dtype, random, 1.0);
        std::vector<double> shifted = x.to_vector();
        for (double& v : shifted) v += 1e4;
        x.copy_(Array::from(shifted, sizes, dtype));
        const Dims out_sizes = reduced_sizes(sizes, random);
        const Array mean = awkward(out_sizes, dtype, random);
        const Array m2 = awkward(out_sizes, dtype, random);
        cpu::moments({mean, m2, x});
        const std::vector<double> values = x.to_vector();
        const std::vector<std::size_t> at = targets(sizes, out_sizes);
        const auto n = static_cast<std::size_t>(numel_of(out_sizes));
        std::vector<double> means(n, 0.0), squares(n, 0.0);
        const double count = static_cast<double>(values.size()) / static_cast<double>(n);
        for (std::size_t i = 0; i < values.size(); ++i) means[at[i]] += values[i] / count;
        for (std::size_t i = 0; i < values.size(); ++i)
          squares[at[i]] += (values[i] - means[at[i]]) * (values[i] - means[at[i]]);
        check_close(mean.to_vector(), means, {2 * epsilon(dtype), 1e-9});
        check_close(m2.to_vector(), squares, {4 * epsilon(dtype) + 1e-11, 1e-9});
      }
    }
  });
}
