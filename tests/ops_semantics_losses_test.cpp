// Losses in their corners: NaN and infinities, means over shares of any size, targets out of range, weights,
// dtypes, and refusals.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

DeviceMesh domain() { return DeviceMesh(test_world(), {{"domain", test_world().size()}}); }

Tensor vector(const std::vector<double>& values, DType dtype = DType::F64) {
  return tensor(values, {static_cast<std::int64_t>(values.size())}, dtype);
}
Tensor numbers(const std::vector<double>& values) { return vector(values, DType::I64); }

// Equal, NaN beside NaN too.
void check_same(const std::vector<double>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << " instead of " << want[i]);
    const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                      std::abs(got[i] - want[i]) <= 1e-12 * std::abs(want[i]);
    CHECK(same);
  }
}

struct Corners {
  std::vector<double> loss, by_input, by_target;
};
using Loss = std::function<Tensor(const Tensor& x, const Tensor& y)>;
void check_corners(const Loss& loss, const std::vector<double>& x_given, const std::vector<double>& y_given,
                   const Corners& want) {
  Tensor x = vector(x_given).set_requires_grad();
  Tensor y = vector(y_given).set_requires_grad();
  const Tensor l = loss(x, y);
  check_same(l.to_vector(), want.loss);
  const Tensors g = grad({l}, {x, y}, {ones(l.sizes(), DType::F64)});
  check_same(g[0].to_vector(), want.by_input);
  check_same(g[1].to_vector(), want.by_target);
}

// Splits dim 0 in shares: all on the last rank but `first` elements on rank 0, none between.
SpecPtr lopsided(const DeviceMesh& mesh, const Dims& sizes, std::int64_t first) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(mesh.size()), 0);
  lengths.front() = mesh.size() == 1 ? sizes[0] : first;
  if (mesh.size() > 1) lengths.back() = sizes[0] - first;
  return ShardSpec::from_lengths(mesh, {Shard(0)}, sizes, {lengths});
}

}  // namespace

TEST_CASE("losses of pairs far out and beside NaN are those of PyTorch", "[ops][losses]") {
  const std::vector<double> d{0, 0.5, 1, -1, 2, kInf, -kInf, kNan};
  const std::vector<double> zero(8, 0.0);
  check_corners([](const Tensor& x, const Tensor& y) { return smooth_l1_loss(x, y, Reduction::None); }, d,
                zero,
                {{0, 0.125, 0.5, 0.5, 1.5, kInf, kInf, kNan},
                 {0, 0.5, 1, -1, 1, 1, -1, kNan},
                 {0, -0.5, -1, 1, -1, -1, 1, kNan}});
  check_corners([](const Tensor& x, const Tensor& y) { return huber_loss(x, y, Reduction::None); }, d, zero,
                {{0, 0.125, 0.5, 0.5, 1.5, kInf, kInf, kNan},
                 {0, 0.5, 1, -1, 1, 1, -1, kNan},
                 {0, -0.5, -1, 1, -1, -1, 1, kNan}});
  for (const Loss& absolute :
       {Loss([](const Tensor&x, const Tensor&y) { return l1_loss(x, y, Reduction::None); }),
        Loss([](const Tensor&x, const Tensor&y) { return smooth_l1_loss(x, y, Reduction::None, 0.0); })})
    check_corners(
        absolute, d, zero,
        {{0, 0.5, 1, 1, 2, kInf, kInf, kNan}, {0, 1, 1, -1, 1, 1, -1, 0}, {0, -1, -1, 1, -1, -1, 1, 0}});
  check_corners(
      [](const Tensor& x, const Tensor& y) { return binary_cross_entropy(x, y, {}, Reduction::None); },
      {0, 1, 1, 0}, {0, 0, 1, 1}, {{0, 100, 0, 100}, {0, 1e12, 0, -1e12}, {kInf, -kInf, -kInf, kInf}});
  check_corners([](const Tensor& x,
                   const Tensor& y) { return binary_cross_entropy_with_logits(x, y, {}, Reduction::None); },
                {kInf, -kInf, 100, -100, 0, kNan}, {1, 0, 0, 1, 0.5, 1},
                {{kNan, kNan, 100, 100, std::log(2.0), kNan},
                 {0, 0, 1, -1, 0, kNan},
                 {-kInf, kInf, -100, 100, 0, kNan}});
  check_corners([](const Tensor& x, const Tensor& y) { return kl_div(x, y, Reduction::None); },
                {-kInf, -kInf, -1}, {0, 0.5, 0}, {{kNan, kInf, 0}, {0, -0.5, 0}, {kNan, kInf, kNan}});
  check_corners([](const Tensor& x, const Tensor& y) { return kl_div(x, y, Reduction::None, true); },
                {-2, -2}, {-kInf, 0}, {{kNan, 2}, {0, -1}, {kNan, 3}});
}

TEST_CASE("means are over all elements, whatever the shares", "[ops][losses]") {
  const DeviceMesh mesh = domain();
  // Thirteen losses 1..13: 7, and not the mean of the shares' means.
  std::vector<double> ramp;
  for (int i = 1; i <= 13; ++i) ramp.push_back(i);
  for (const std::int64_t first : {0, 1, 6}) {
    const SpecPtr spec = lopsided(mesh, {13}, first);
    Tensor x = redistribute(vector(ramp), spec).detach().set_requires_grad();
    const Tensor y = redistribute(zeros({13}, DType::F64), spec);
    for (const Loss& loss : {Loss([](const Tensor&a, const Tensor&b) { return l1_loss(a, b); }),
                             Loss([](const Tensor&a, const Tensor&b) { return smooth_l1_loss(a, b) + 0.5; }),
                             Loss([](const Tensor&a, const Tensor&b) { return huber_loss(a, b) + 0.5; })}) {
      x.zero_grad();
      const Tensor l = loss(x, y);
      CHECK(l.item() == Approx(7.0).epsilon(1e-14));
      l.backward();
      check_same(x.grad().to_vector(), std::vector<double>(13, 1.0 / 13));
    }
  }
  // Means of nothing are NaN, sums are 0, and there is no gradient to lose.
  const SpecPtr nothing = ShardSpec::make(mesh, {Shard(0)}, {0, 3});
  const Tensor none(Array::zeros(nothing->local_sizes(), DType::F64), nothing);
  CHECK(std::isnan(l1_loss(none, none).item()));
  CHECK(huber_loss(none, none, Reduction::Sum).item() == 0);
  const Tensor no_target(Array::zeros({0}, DType::I64), ShardSpec::make(mesh, {Replicate()}, {0}));
  CHECK(std::isnan(cross_entropy(none, no_target).item()));
  CHECK(cross_entropy(none, no_target, {}, {.reduction = Reduction::Sum}).item() == 0);
}

TEST_CASE("targets that do not count: of one rank, and of all", "[ops][losses]") {
  const DeviceMesh mesh = domain();
  const Tensor logits = tensor(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}, DType::F64);
  Tensor x = redistribute(logits, lopsided(mesh, {3, 3}, 2)).detach().set_requires_grad();
  // Rank 0 has nothing that counts.
  const Tensor y = redistribute(numbers({-100, -100, 1}), lopsided(mesh, {3}, 2));
  const Tensor loss = cross_entropy(x, y);
  CHECK(loss.item() == Approx(std::log(std::exp(-1.0) + 1 + std::exp(1.0))));
  loss.backward();
  const std::vector<double> g = x.grad().to_vector();
  for (std::size_t i = 0; i < 6; ++i) CHECK(g[i] == 0);
  CHECK(g[6] + g[7] + g[8] == Approx(0).margin(1e-14));
  x.zero_grad();
  const Tensor all = redistribute(numbers({-100, -100, -100}), lopsided(mesh, {3}, 2));
  const Tensor nothing = cross_entropy(x, all);
  CHECK(std::isnan(nothing.item()));
  nothing.backward();
  CHECK(x.grad().to_vector() == std::vector<double>(9, 0.0));
  CHECK(cross_entropy(x, all, {}, {.reduction = Reduction::Sum}).item() == 0);
}

TEST_CASE("the weight of a class that is no target counts for nothing", "[ops][losses]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Generator draws(17);
  const double far = std::numeric_limits<double>::infinity();
  for (const double odd : {far, std::numeric_limits<double>::quiet_NaN()})
    for (const int classes_at : {1, -1})
      for (const int cut : {-1, 0, 1}) {
        const Dims sizes = classes_at == -1 ? Dims{6, 4} : Dims{2, 4, 3};
        const Tensor values = randn(sizes, draws, DType::F64);
        const Tensor target = reshape(numbers({0, 1, 3, 1, 0, 3}), classes_at == -1 ? Dims{6} : Dims{2, 3});
        const auto gradient = [&](double unused) {
          const Tensor weight = tensor(std::vector<double>{0.5, 2.0, unused, 1.5}, {4}, DType::F64);
          Tensor x = values.detach();
          if (cut >= 0) x = x.redistribute(ShardSpec::make(mesh, {Shard(cut)}, sizes));
          x = x.detach().set_requires_grad();
          return grad({cross_entropy(x, target, weight)}, {x})[0].to_vector();
        };
        INFO("weight " << odd << ", " << sizes.str() << " cut along " << cut);
        CHECK(gradient(odd) == gradient(1.0));
      }
}

TEST_CASE("NaN among the logits tells of itself in its row alone, wherever the classes are",
          "[ops][losses]") {
  const DeviceMesh mesh = domain();
  const Tensor logits = tensor(std::vector<double>{kNan, 2, 3, 4, 5, 6}, {2, 3}, DType::F64);
  for (const int dim : {0, 1}) {
    const Tensor x = redistribute(logits, ShardSpec::make(mesh, {Shard(dim)}, {2, 3}));
    const Tensor each = cross_entropy(x, numbers({1, 2}), {}, {.reduction = Reduction::None});
    const double second = std::log(std::exp(-2.0) + std::exp(-1.0) + 1);
    const std::vector<double> losses = each.to_vector();
    CHECK(std::isnan(losses[0]));
    CHECK(losses[1] == Approx(second));
    CHECK(cross_entropy(x, numbers({-100, 2})).item() == Approx(second));
  }
}

TEST_CASE("a target out of range is refused by the ranks that see it, of a mean by all", "[ops][losses]") {
  const DeviceMesh mesh = domain();
  const int ranks = test_world().size();
  const std::int64_t n = 2 * ranks;
  const bool last = test_world().rank() == ranks - 1;
  const auto said = [](const std::function<void()>& f) {
    const std::string text = refusal(f);
    CHECK(same_everywhere(text));
    return text;
  };
  const auto refused_by_last = [&](const std::string& expected, const std::function<void()>& f) {
    const std::int64_t before = test_world().recorder().totals().calls;
    const std::string text = refusal(f);
    CHECK(test_world().recorder().totals().calls == before);
    CHECK((last ? contains(text, expected) : text.empty()));
  };
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}}) {
    std::vector<double> targets(static_cast<std::size_t>(n), 1.0);
    targets.back() = static_cast<double>(wrong);  // on the last rank
    const std::string expected = fmt::format("target {} is out of range for 3 classes", wrong);
    const Tensor x = redistribute(zeros({n, 3}), ShardSpec::make(mesh, {Shard(0)}, {n, 3}));
    const Tensor classes_cut = redistribute(zeros({n, 3}), ShardSpec::make(mesh, {Shard(1)}, {n, 3}));
    const Tensor y = redistribute(numbers(targets), ShardSpec::make(mesh, {Shard(0)}, {n}));
    for (const Reduction r : {Reduction::Mean, Reduction::Sum, Reduction::None}) {
      for (auto* loss : {&cross_entropy, &nll_loss}) {
        const auto call = [&] { loss(x, y, {}, {.reduction = r}); };
        if (r == Reduction::Mean) {
          CHECK(contains(said(call), expected));
        } else {
          refused_by_last(expected, call);
        }
      }
      CHECK(contains(said([&] { cross_entropy(classes_cut, y, {}, {.reduction = r}); }), expected));
      CHECK(contains(said([&] {
                       cross_entropy(zeros({n, 3}), numbers(targets), {}, {.reduction = r});
                     }),
                     expected));
    }
    // What was refused leaves nothing behind.
    CHECK(cross_entropy(x, to(eq(y, y), DType::I64)).item() == Approx(std::log(3.0)));
  }
  const Tensor p = redistribute(full({n}, 0.5), ShardSpec::make(mesh, {Shard(0)}, {n}));
  std::vector<double> outside(static_cast<std::size_t>(n), 0.5);
  outside.back() = 1.5;
  const Tensor q = redistribute(vector(outside, DType::F32), ShardSpec::make(mesh, {Shard(0)}, {n}));
  refused_by_last("needs inputs between 0 and 1", [&] { binary_cross_entropy(q, p); });
  refused_by_last("needs targets between 0 and 1", [&] { binary_cross_entropy(p, q); });
  CHECK(said([&] { binary_cross_entropy(p, p); }).empty());
}

TEST_CASE("losses of bfloat16 are summed in more digits", "[ops][losses]") {
  const Tensor x(Array::full({2000}, 1.0, DType::BF16));
  const Tensor y(Array::zeros({2000}, DType::BF16));
  CHECK(l1_loss(x, y).item() == 1.0);  // a sum in bfloat16 stops at 256
  CHECK(l1_loss(x, y).dtype() == DType::BF16);
  const Tensor logits(Array::zeros({2000, 4}, DType::BF16));
  const Tensor loss = cross_entropy(logits, Tensor(Array::zeros({2000}, DType::I64)));
  CHECK(loss.dtype() == DType::BF16);
  CHECK(loss.item() == Approx(std::log(4.0)).epsilon(0.005));
}

TEST_CASE("a float32 prediction against a float64 target", "[ops][losses]") {
  Tensor x = vector({1, 2}, DType::F32).set_requires_grad();
  const Tensor loss = l1_loss(x, vector({0, 0}));
  CHECK(loss.dtype() == DType::F64);
  loss.backward();
  CHECK(x.grad().dtype() == DType::F32);
  CHECK(x.grad().to_vector() == std::vector<double>{0.5, 0.5});
}

TEST_CASE("losses of split classes gather no logits", "[ops][losses]") {
  const DeviceMesh mesh = domain();
  const Dims sizes{4, 100};
  Generator g(5);
  Tensor x = randn(sizes, g, DType::F32, ShardSpec::make(mesh, {Shard(1)}, sizes)).set_requires_grad();
  const Tensor y = numbers({0, 99, 50, 7});
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  const Tensor loss = cross_entropy(x, y);
  recorder.stop();
  CHECK(recorder.bytes("all_gather") == (test_world().size() > 1 ? 3 * 4 * 4 : 0));
  recorder.start();
  loss.backward();
  recorder.stop();
  CHECK(recorder.records().empty());
  CHECK(x.grad().spec() == x.spec());
}

TEST_CASE("where prediction and target are cut alike only a mean over classes sends, once", "[ops][losses]") {
  const DeviceMesh mesh = domain();
  const int ranks = test_world().size();
  const std::int64_t n = 3 * ranks;
  const auto along = [&](const Tensor& t) {
    return redistribute(t, ShardSpec::make(mesh, {Shard(0)}, t.sizes())).detach();
  };
  Generator g(6);
  Tensor x = along(randn({n, 4}, g)).set_requires_grad();
  const Tensor y = along(Tensor(Array::full({n}, 2, DType::I64)));
  const Tensor p = along(full({n}, 0.25));
  Recorder& recorder = mesh.comm().recorder();
  const auto sent = [&](const std::function<Tensor()>& f, bool owed) {
    recorder.start();
    const Tensor loss = f();
    recorder.stop();
    CHECK(loss.spec()->has_partial() == owed);
    return recorder.records().size();
  };
  for (auto* loss : {&cross_entropy, &nll_loss}) {
    const auto reduced = [&](Reduction r) { return [&, r] { return loss(x, y, {}, {.reduction = r}); }; };
    CHECK(sent(reduced(Reduction::None), false) == 0);
    CHECK(sent(reduced(Reduction::Sum), true) == 0);
    CHECK(sent(reduced(Reduction::Mean), false) == 1);
    if (ranks > 1) CHECK(recorder.bytes("all_gather") == 4 * 8);
    const Tensor whole = tensor(x.to_vector(), {n, 4}).set_requires_grad();
    const Tensor want =
        loss(whole, tensor(y.to_vector(), {n}, DType::I64), {}, {.reduction = Reduction::Sum});
    x.zero_grad();
    const Tensor got = reduced(Reduction::Sum)();
    CHECK(got.item() == Approx(want.item()));
    got.backward();
    want.backward();
    const std::vector<double> dx = x.grad().to_vector();
    const std::vector<double> wanted = whole.grad().to_vector();
    for (std::size_t i = 0; i < dx.size(); ++i) CHECK(dx[i] == Approx(wanted[i]).margin(1e-6));
  }
  const auto entropy = [&](Reduction r) { return [&, r] { return binary_cross_entropy(p, p, {}, r); }; };
  CHECK(sent(entropy(Reduction::None), false) == 0);
  CHECK(sent(entropy(Reduction::Sum), true) == 0);
  CHECK(sent(entropy(Reduction::Mean), true) == 0);
}

TEST_CASE("losses refuse what does not fit, alike on every rank", "[ops][losses]") {
  const auto said = [](const std::function<void()>& f) {
    const std::string text = refusal(f);
    CHECK(same_everywhere(text));
    return text;
  };
  const Tensor x = zeros({2, 3});
  const Tensor y = zeros({2, 3});
  CHECK(contains(said([&] { binary_cross_entropy(x, zeros({3})); }),
                 "prediction [2, 3] and target [3] must have the same sizes"));
  CHECK(contains(said([&] { mse_loss(x, Tensor()); }), "an input is undefined"));
  CHECK(contains(said([&] { l1_loss(to(x, DType::I64), to(y, DType::I64)); }),
                 "needs floating tensors, given i64"));
  CHECK(contains(said([&] { smooth_l1_loss(x, y, Reduction::Mean, -1); }), "beta is -1"));
  CHECK(contains(said([&] { huber_loss(x, y, Reduction::Mean, 0); }), "delta is 0"));
  CHECK(contains(said([&] { l1_loss(x, y, Reduction::BatchMean); }), "kl_div alone"));
  CHECK(contains(said([&] { binary_cross_entropy_with_logits(x, y, zeros({4, 2, 3})); }), "broadcast"));
  Tensor w = ones({3});
  w.set_requires_grad();
  CHECK(contains(said([&] { binary_cross_entropy_with_logits(x, y, w); }),
                 "no gradient with respect to weights"));
  const Tensor t = numbers({0, 1});
  CHECK(contains(said([&] { cross_entropy(x, t, w); }), "no gradient with respect to weights"));
  CHECK(contains(said([&] { cross_entropy(x, t, ones({2})); }), "for each of 3 classes, given [2]"));
  CHECK(contains(said([&] {
                   cross_entropy(x, numbers({0, 1, 2}));
                 }),
                 "must have sizes [2] for an input [2, 3]"));
  CHECK(contains(said([&] { cross_entropy(zeros({2, 3, 4}), t); }), "must have sizes [2, 4]"));
  CHECK(contains(said([&] { cross_entropy(x, to(t, DType::I32)); }), "must be i64, given i32"));
  CHECK(contains(said([&] { cross_entropy(x, t, {}, {.label_smoothing = 1.5}); }), "0 to 1 are allowed"));
  CHECK(
      contains(said([&] { cross_entropy(Tensor(Array::zeros({}, DType::F32)), t); }), "[N, C, ...] or [C]"));
  CHECK(contains(said([&] { nll_loss(x, t, {}, {.label_smoothing = 0.1}); }), "option of cross_entropy"));
  CHECK(contains(said([&] { nll_loss(x, y); }), "must be i64, given f32"));
}
