// Corners of reductions: what is refused, what travels, and numbers that only careful sums get right.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

DeviceMesh line() { return mesh_over(test_world(), {test_world().size()}); }

Tensor cut_along(int dim, const Values& values, const Dims& sizes, DType dtype = DType::F64) {
  return tensor(values, sizes, dtype).redistribute(ShardSpec::make(line(), {Shard(dim)}, sizes)).detach();
}

// Pieces of one position, dealt out to the ranks from the last to the first.
SpecPtr dealt(const Dims& sizes) {
  DimCut cut;
  cut.axes = {0};
  cut.parts.resize(static_cast<std::size_t>(line().size()));
  for (std::int64_t i = sizes[0]; i-- > 0;)
    cut.parts[static_cast<std::size_t>(i) % cut.parts.size()].push_back({i, i + 1});
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  cuts[0] = cut;
  return ShardSpec::make(line(), {Shard(0)}, sizes, cuts);
}

struct Sent {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};
Sent sent_by(const std::function<void()>& f) {
  const Recorder::Totals before = test_world().recorder().totals();
  f();
  const Recorder::Totals after = test_world().recorder().totals();
  return {after.calls - before.calls, after.bytes - before.bytes};
}

}  // namespace

TEST_CASE("reductions refuse what has no result, alike on all ranks", "[ops]") {
  const Tensor x = cut_along(0, Values(12, 1.0), {4, 3});
  const Tensor nothing = zeros({0, 3}, DType::F64);
  const Tensor whole(Array::full({2}, 1, DType::I64));
  const auto says = [](const std::function<void()>& f, const char* part) {
    const std::string text = refusal(f);
    INFO(text);
    CHECK(contains(text, part));
    CHECK(same_everywhere(text));
  };
  says([&] { argmax(nothing); }, "dim 0 of [0, 3] is empty");
  says([&] { argmin(nothing, 0); }, "dim 0 of [0, 3] is empty");
  says([&] { argmax(x, 2); }, "dim 2");
  says([&] { argmax(Tensor()); }, "undefined");
  says([&] { norm(x, kNan); }, "order must be a number");
  says([&] { norm(nothing, kInf, {0}); }, "norm of order inf over nothing");
  says([&] { norm(nothing, -1.0); }, "norm of order -1 over nothing");
  says([&] { norm(whole); }, "needs a floating tensor, given i64");
  says([&] { tessera::std(whole); }, "needs a floating tensor, given i64");
  says([&] { logsumexp(x, {0, 0}); }, "appears twice");
  says([&] { logsumexp(Tensor()); }, "undefined");
  says([&] { cumsum(x, 2); }, "dim 2");
  says([&] { prod(x, {-3}); }, "dim -3");
  says([&] { any(Tensor()); }, "undefined");
  CHECK(argmax(nothing, 1).sizes() == Dims{0});
  CHECK(norm(nothing, kInf, {1}).sizes() == Dims{0});
}

TEST_CASE("one message, and none where a sum may stay owed", "[ops]") {
  if (test_world().size() == 1) return;
  const Tensor x = cut_along(1, Values(30, 0.5), {2, 5, 3});
  for (const auto& f : std::vector<std::function<Tensor()>>{
           [&] { return argmax(x, 1); }, [&] { return argmin(x); },
           [&] {
             return logsumexp(x, {1, 2});
           },
           [&] { return norm(x, 2.0, {1}); }, [&] { return tessera::std(x, {1}); },
           [&] { return var(x, {1}); }, [&] { return cumsum(x, 1); }, [&] { return softmax(x, 1); },
           [&] { return log_softmax(x, 1); }})
    CHECK(sent_by([&] { f(); }).calls == 1);
  // The way back: one message where an element's gradient takes a sum over its group, none where it takes the
  // group's result alone.
  const auto back = [&](const std::function<Tensor(const Tensor&)>& f) {
    Tensor leaf = x.detach().set_requires_grad();
    const Tensor y = f(leaf);
    const SpecPtr spec = y.spec();
    const Tensor cotangent(Array::full(spec->local_sizes(), 1.0, DType::F64), spec);
    return sent_by([&] { y.backward(cotangent); }).calls;
  };
  CHECK(back([](const Tensor& t) { return softmax(t, 1); }) == 1);
  CHECK(back([](const Tensor& t) { return log_softmax(t, 1); }) == 1);
  CHECK(back([](const Tensor& t) { return var(t, {1}); }) == 0);
  CHECK(back([](const Tensor& t) { return tessera::std(t, {1}); }) == 0);
  CHECK(back([](const Tensor& t) { return logsumexp(t, {1}); }) == 0);
  const auto owes = [](const Tensor& y, ReduceOp op) {
    return y.spec()->placement(0).is_partial() && y.spec()->placement(0).op == op;
  };
  const auto silent = [&](const std::function<Tensor()>& f) {
    Tensor y;
    CHECK(sent_by([&] { y = f(); }).calls == 0);
    return y;
  };
  CHECK(owes(silent([&] { return prod(x, {1}); }), ReduceOp::Product));
  CHECK(owes(silent([&] { return any(x, {1}); }), ReduceOp::Max));
  CHECK(owes(silent([&] { return all(x, {1}); }), ReduceOp::Min));
  CHECK(owes(silent([&] { return count_nonzero(x, {1}); }), ReduceOp::Sum));
  CHECK(owes(silent([&] { return norm(x, 1.0, {1}); }), ReduceOp::Sum));
  CHECK(owes(silent([&] { return norm(x, kInf, {1}); }), ReduceOp::Max));
  const Tensor owed = sum(x, {1});
  CHECK(owes(silent([&] { return cumsum(owed, 0); }), ReduceOp::Sum));
  CHECK(cumsum(owed, 0).to_vector() == Values{2.5, 2.5, 2.5, 5, 5, 5});
}

namespace {

struct Derived {
  Values y, dx;
};
Derived derive(const std::function<Tensor(const Tensor&)>& f, const Tensor& given, const Tensor& cotangent) {
  Tensor x = given.detach().set_requires_grad();
  const Tensor y = f(x);
  y.backward(cotangent);
  return {y.to_vector(), x.grad().to_vector()};
}

// The largest difference, relative to the largest value that was wanted.
double off(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  double scale = 0;
  double most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    scale = std::max(scale, std::abs(want[i]));
    most = std::max(most, std::isnan(got[i]) ? kInf : std::abs(got[i] - want[i]));
  }
  return most / scale;
}

}  // namespace

TEST_CASE("statistics of float32 data with mean 10000 and deviation 1 keep their digits under every cut",
          "[ops]") {
  auto random = test_random(94);
  const Dims sizes{3, 40, 4};
  Generator g(random());
  const Tensor far = to(randn(sizes, g, DType::F64) + 1e4, DType::F32);
  struct Statistic {
    const char* name;
    std::function<Tensor(const Tensor&)> f;
  };
  const std::vector<Statistic> list{{"var", [](const Tensor& x) { return var(x, {1}); }},
                                    {"var of all", [](const Tensor& x) { return var(x); }},
                                    {"std", [](const Tensor& x) { return tessera::std(x, {1}); }},
                                    {"logsumexp", [](const Tensor& x) { return logsumexp(x, {1}); }},
                                    {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
                                    {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }}};
  for (const auto& [name, f] : list) {
    const Tensor cotangent = randn(f(far).sizes(), g);
    const Derived want = derive(f, to(far, DType::F64), to(cotangent, DType::F64));
    for (const DeviceMesh& mesh : all_meshes())
      for (int trial = 0; trial < 6; ++trial) {
        const SpecPtr spec = random_spec(random, mesh, sizes, {.replicate_percent = 10});
        INFO(name << " " << spec->str());
        const Derived got = derive(f, redistribute(far, spec), cotangent);
        CHECK(off(got.y, want.y) < 2e-6);
        CHECK(off(got.dx, want.dx) < 1e-5);
      }
  }
}

TEST_CASE("argmax points at the lowest global index, wherever it lies", "[ops]") {
  // Pieces held in falling order: the first of a rank is not the lowest.
  const auto place = [](const Values& v) {
    const Dims sizes{static_cast<std::int64_t>(v.size())};
    return tensor(v, sizes, DType::F64).redistribute(dealt(sizes)).detach();
  };
  CHECK(argmax(place({1, 5, 2, 5, 5, 0, 5})).item() == 1);
  CHECK(argmin(place({3, 0, 2, 0, 0, 0, 0, 0}), 0).item() == 1);
  CHECK(argmax(place({1, kNan, 7, kNan, kInf, 0, 2})).item() == 1);
  CHECK(argmin(place({1, 5, 2, -kInf, 5, kNan, kNan})).item() == 5);
  CHECK(argmax(place({-kInf, -kInf, -kInf, -kInf})).item() == 0);
  // Integers beyond what a double can tell apart.
  const std::int64_t large = (std::int64_t{1} << 60U) + 1;
  Array numbers = Array::full({6}, 0, DType::I64);
  for (std::int64_t i = 0; i < 6; ++i) numbers.data<std::int64_t>()[i] = large + (i == 4 ? 1 : 0);
  const Tensor whole(numbers);
  CHECK(argmax(whole).item() == 4);
  CHECK(argmax(whole.redistribute(dealt({6}))).item() == 4);
  CHECK(argmin(whole.redistribute(dealt({6}))).item() == 0);
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  numbers.data<std::int64_t>()[0] = numbers.data<std::int64_t>()[5] = lowest;
  CHECK(argmin(whole.redistribute(dealt({6}))).item() == 0);
}

TEST_CASE("softmax of one number alone passes NaN and infinity on, also to its gradient", "[ops]") {
  const auto gradient = [](double value, bool log) {
    Tensor x = full({}, value, DType::F64).set_requires_grad();
    const Tensor y = log ? log_softmax(x, 0) : softmax(x, 0);
    y.backward();
    return std::pair(y.item(), x.grad().item());
  };
  for (const bool log : {false, true}) {
    CHECK(gradient(3, log) == std::pair(log ? 0.0 : 1.0, 0.0));
    for (const double value : {kInf, -kInf, std::nan("")}) {
      const auto [y, dx] = gradient(value, log);
      CHECK((std::isnan(y) && std::isnan(dx)));
    }
  }
}

TEST_CASE("std of equal values is 0 with gradient 0, also over ranks", "[ops]") {
  for (const double value : {0.1, 1e-200, 3e7}) {
    for (const bool split : {false, true}) {
      Tensor x = split ? cut_along(0, Values(7, value), {7}) : tensor(Values(7, value), {7}, DType::F64);
      x.set_requires_grad();
      const Tensor y = tessera::std(x);
      CHECK(y.item() == 0);
      y.backward();
      CHECK(x.grad().to_vector() == Values(7, 0.0));
    }
  }
  CHECK(std::isnan(tessera::std(tensor(Values{2.0}, {1}, DType::F64)).item()));
  CHECK(tessera::std(cut_along(0, {1e30, -1e30}, {2}, DType::F32)).item() == Approx(1.4142135e30));
}

TEST_CASE("norms neither overflow nor vanish in float32, bf16 and f16", "[ops]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const double p : {2.0, 3.0})
      for (const double value : {dtype == DType::F16 ? 3e3 : 1e30, dtype == DType::F16 ? 1e-4 : 1e-30}) {
        Tensor x = cut_along(0, Values(8, value), {8}, dtype);
        x.set_requires_grad();
        const Tensor y = norm(x, p);
        CHECK(y.item() == Approx(value * std::pow(8.0, 1 / p)).epsilon(1e-2));
        if (p != 2.0) continue;
        y.backward();
        for (const double g : x.grad().to_vector()) CHECK(g == Approx(1 / std::sqrt(8.0)).epsilon(1e-2));
      }
}

TEST_CASE("means of f16 whose sums it has no room for", "[ops]") {
  Tensor x = cut_along(0, Values(4000, 300.0), {4000}, DType::F16);
  x.set_requires_grad();
  const Tensor y = mean(x);
  CHECK(y.dtype() == DType::F16);
  CHECK(y.item() == 300);
  sum(y * 4000.0).backward();
  for (const double g : x.grad().to_vector()) CHECK(g == 1);
  CHECK(std::isinf(sum(x).item()));
  const Tensor none = x.detach() * 0.0;
  const Tensor weight(Array::full({}, 2.0, DType::F16));
  CHECK(smooth_l1_loss(x, none).item() == Approx(299.5).epsilon(1e-3));
  CHECK(binary_cross_entropy_with_logits(x, none, weight).item() == 600);
}

TEST_CASE("running sums keep their digits", "[ops]") {
  const std::int64_t n = 4096;
  const Values tenths(static_cast<std::size_t>(n), 0.1);
  const Tensor coarse = cumsum(cut_along(0, tenths, {n}, DType::BF16), 0);
  CHECK(coarse.dtype() == DType::BF16);
  // 4096 times what bfloat16 makes of 0.1; a sum kept in bfloat16 would stop growing at 32.
  CHECK(coarse.to_vector().back() == 410);
  const std::int64_t many = 1 << 20;
  const Tensor fine =
      cumsum(cut_along(0, Values(static_cast<std::size_t>(many), 0.1), {many}, DType::F32), 0);
  CHECK(fine.to_vector().back() == Approx(104857.6016).epsilon(1e-6));
  const Tensor counted = cumsum(cut_along(0, {1, 0, 1, 1}, {4}, DType::Bool), 0);
  CHECK(counted.dtype() == DType::I64);
  CHECK(counted.to_vector() == Values{1, 1, 2, 3});
  CHECK(
      cumsum(tensor(Values{1, 2, 3, 4, 5, 6, 7}, {7}, DType::F64).redistribute(dealt({7})), 0).to_vector() ==
      Values{1, 3, 6, 10, 15, 21, 28});
}

TEST_CASE("a product's gradient beside zeros is that of its other factors, whatever these are", "[ops]") {
  std::mt19937_64 random = test_random(9);
  const std::vector<double> drawn{0, 0, kInf, -kInf, kNan, 0.5, -0.5, 2, -3, 4, 1, 7};
  for (int trial = 0; trial < 40; ++trial) {
    const std::int64_t rows = random_int(random, 1, 6);
    const std::int64_t n = random_int(random, 1, 7);
    Values x;
    Values dy;
    for (std::int64_t i = 0; i < rows * n; ++i)
      x.push_back(trial % 2 == 0 || random_int(random, 0, 9) == 0
                      ? drawn[static_cast<std::size_t>(random_int(random, 0, 11))]
                      : drawn[static_cast<std::size_t>(random_int(random, 5, 11))]);
    x[static_cast<std::size_t>(random_int(random, 0, rows * n - 1))] = 0;
    for (std::int64_t i = 0; i < rows; ++i) dy.push_back(static_cast<double>(random_int(random, 1, 5)));
    Values want;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(n);
      double others = 1;
      for (std::size_t j = row * static_cast<std::size_t>(n); j < (row + 1) * static_cast<std::size_t>(n);
           ++j)
        if (j != i) others *= x[j];
      want.push_back(dy[row] * others);
    }
    const int dim = static_cast<int>(random_int(random, -1, 1));
    Tensor factors = dim < 0 ? tensor(x, {rows, n}, DType::F64) : cut_along(dim, x, {rows, n});
    factors.set_requires_grad();
    const Tensor y = prod(factors, {1});
    const Values got = grad({y}, {factors}, {tensor(dy, {rows}, DType::F64)})[0].to_vector();
    CAPTURE(trial, dim, x);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i])) CHECK(std::isnan(got[i]));
      if (!std::isnan(want[i])) CHECK(got[i] == want[i]);
    }
  }
}

// 300 · 200 · 10 is more than f16 holds, which the factors of other ranks bring back.
TEST_CASE("a product's gradient beside zeros is not rounded to the type between ranks", "[ops]") {
  const Values first{0, 300, 200, 10, 0.125, 0.0625, 3, 1};
  const Values last{300, 200, 10, 3, 1, 0.125, 0.0625, 0};
  for (const DType t : {DType::F16, DType::BF16, DType::F32})
    for (const Values& x : {first, last}) {
      Tensor whole = tensor(x, {8}, t).set_requires_grad();
      Tensor cut = cut_along(0, x, {8}, t).set_requires_grad();
      const auto gradient = [&](const Tensor& of) {
        return grad({prod(of, {0})}, {of}, {tensor(Values{0.75}, {}, t)})[0].to_vector();
      };
      CAPTURE(name_of(t), x);
      CHECK(gradient(cut) == gradient(whole));
    }
}

TEST_CASE("a product's gradient of gradients where factors are 0", "[ops]") {
  Tensor x = cut_along(0, {2, 0, 3, 0}, {4});
  x.set_requires_grad();
  const Tensor first = grad({prod(x)}, {x}, {}, {.create_graph = true})[0];
  CHECK(first.to_vector() == Values{0, 0, 0, 0});
  // d²/dx1 dx3 is 2 · 3.
  const Tensor second = grad({first}, {x}, {tensor(Values{0, 1, 0, 0}, {4}, DType::F64)})[0];
  CHECK(second.to_vector() == Values{0, 0, 0, 6});
}
