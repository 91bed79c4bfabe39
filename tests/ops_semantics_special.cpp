// NaN, infinities and zeros of both signs through gradients that are themselves recorded: the formulas must
// agree with the fused kernels, which the case files hold to PyTorch's values.
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
const Values kSpecial{-kInf, -21, -1, -0.0, 0.0, 0.5, 1, 21, kInf, kNan};

struct Named {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
};
const std::vector<Named>& unary_ops() {
  static const std::vector<Named> list{
      {"relu", &relu},
      {"silu", &silu},
      {"sigmoid", &sigmoid},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"log", [](const Tensor& x) { return log(x); }},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }},
      {"rsqrt", &rsqrt},
      {"abs", [](const Tensor& x) { return abs(x); }},
      {"square", &square},
      {"sin", [](const Tensor& x) { return sin(x); }},
      {"cos", [](const Tensor& x) { return cos(x); }},
      {"erf", [](const Tensor& x) { return erf(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x); }},
      {"reciprocal", &reciprocal},
      {"sign", &sign},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluKind::Tanh); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
      {"elu", [](const Tensor& x) { return elu(x, 0.7); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.5); }},
      {"pow 0.5", [](const Tensor& x) { return pow(x, 0.5); }},
      {"pow -0.5", [](const Tensor& x) { return pow(x, -0.5); }},
      {"pow 1.5", [](const Tensor& x) { return pow(x, 1.5); }},
      {"pow 3", [](const Tensor& x) { return pow(x, 3.0); }},
      {"pow -1", [](const Tensor& x) { return pow(x, -1.0); }},
      {"pow of 0", [](const Tensor& x) { return pow(0.0, x); }},
      {"pow of -2", [](const Tensor& x) { return pow(-2.0, x); }},
      {"pow by tensors", [](const Tensor& x) { return pow(x, flip(x, {0})); }},
  };
  return list;
}

// NaN like NaN, infinities of one sign, zeros of any sign.
bool alike(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 1e-9 * std::max(1.0, std::abs(b));
}

}  // namespace

TEST_CASE("recorded gradients agree with fused ones where values are special", "[ops]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  for (const Named& op : unary_ops()) {
    Tensor x =
        tensor(kSpecial, {10}, DType::F64).redistribute(ShardSpec::make(mesh, {Shard(0)}, {10})).detach();
    x.set_requires_grad();
    const Values fused = grad({op.f(x)}, {x}, {ones({10}, DType::F64)})[0].to_vector();
    const Values recorded =
        grad({op.f(x)}, {x}, {ones({10}, DType::F64)}, {.create_graph = true})[0].to_vector();
    for (std::size_t i = 0; i < fused.size(); ++i) {
      INFO(op.name << " at " << kSpecial[i] << ": " << fused[i] << " and " << recorded[i]);
      CHECK(alike(recorded[i], fused[i]));
    }
  }
}

TEST_CASE("the sign of NaN is 0, and so is the slope of abs there", "[ops]") {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    CHECK(sign(tensor(kSpecial, {10}, dtype)).to_vector() == Values{-1, -1, -1, 0, 0, 1, 1, 1, 1, 0});
    Tensor x = tensor(Values{kNan, -2}, {2}, dtype).set_requires_grad();
    sum(abs(x)).backward();
    CHECK(x.grad().to_vector() == Values{0, -1});
  }
}

TEST_CASE("relu and elu pass gradients on at NaN, in every type and at every length", "[ops]") {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (const std::int64_t n : {1, 7, 64, 1000})
      for (auto* f : {+[](const Tensor& x) { return relu(x); }, +[](const Tensor& x) { return elu(x); }}) {
        Tensor x = Tensor(Array::full({n}, kNan, dtype)).set_requires_grad();
        const Tensor y = f(x);
        for (const double v : y.to_vector()) CHECK(std::isnan(v));
        y.backward(ones({n}, dtype));
        CHECK(x.grad().to_vector() == Values(static_cast<std::size_t>(n), 1.0));
      }
}

TEST_CASE("an infinite number is a factor of a sum that is owed, not of its terms", "[ops]") {
  const auto world = test_world();
  const DeviceMesh mesh = mesh_over(world, {world.size()});
  const Values whole{1, -2, 0, 3};
  const SpecPtr owed = ShardSpec::make(mesh, {Partial()}, {4});
  // All on the last rank: the other terms are 0.
  const Array own =
      world.rank() + 1 == world.size() ? Array::from(whole, {4}, DType::F64) : Array::zeros({4}, DType::F64);
  const Tensor x(own, owed);
  const Tensor plain = tensor(whole, {4}, DType::F64);
  const auto check = [](const Tensor& got, const Tensor& want) {
    const Values g = got.to_vector();
    const Values w = want.to_vector();
    for (std::size_t i = 0; i < w.size(); ++i) {
      INFO("element " << i << ": " << g[i] << ", want " << w[i]);
      CHECK((std::isnan(w[i]) ? std::isnan(g[i]) : g[i] == w[i]));
    }
  };
  const Tensor one = ones({4}, DType::F64);
  for (const double factor : {kInf, -kInf, kNan, 2.0}) {
    INFO("factor " << factor);
    check(x * factor, plain * factor);
    check(add(x, x, factor), add(plain, plain, factor));
    check(add(one, x, factor), add(one, plain, factor));
  }
  check(x / 0.0, plain / 0.0);
  CHECK((x * 2.0).spec()->has_partial());
  CHECK(add(x, x, 2.0).spec()->has_partial());
}

TEST_CASE("infinite factors and divisors of 0 in a tensor meet the sum that is owed, not its terms",
          "[ops]") {
  const auto world = test_world();
  const double last = world.rank() + 1 == world.size() ? 1 : 0;
  const double first = world.rank() == 0 ? 1 : 0;
  const Values whole{2, -2, 0, 3, 5, 1};
  Values terms;  // of both signs where there are ranks enough
  for (const double v : whole) terms.push_back(last * (v + 7) - first * 7);
  const Values special{kInf, -kInf, kInf, 0.0, kNan, -0.0};
  for (const DeviceMesh& mesh : {mesh_over(world, {world.size()}), mesh_over(world, {1, world.size()})})
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
      for (const bool columns : {false, true}) {
        Placements placements(static_cast<std::size_t>(mesh.ndim()));
        placements.back() = Partial();
        const SpecPtr owed = ShardSpec::make(mesh, placements, {6, 1});
        Tensor x(Array::from(terms, {6, 1}, dtype), owed);
        Tensor plain = tensor(whole, {6, 1}, dtype);
        const Dims sizes = columns ? Dims{1, 6} : Dims{6, 1};  // broadcast against x, or of its sizes
        const auto agree = [&](const char* what, const auto& f) {
          INFO(what << " in " << name_of(dtype) << " on " << mesh.str());
          const Tensor factor = tensor(special, sizes, dtype);
          x = x.detach().set_requires_grad();
          plain = plain.detach().set_requires_grad();
          const Tensor got = f(x, factor);
          const Tensor want = f(plain, factor);
          const Values g = got.to_vector();
          const Values w = want.to_vector();
          REQUIRE(g.size() == w.size());
          for (std::size_t i = 0; i < w.size(); ++i)
            CHECK((std::isnan(w[i]) ? std::isnan(g[i]) : g[i] == w[i]));
          got.backward(ones(got.sizes(), dtype));
          want.backward(ones(want.sizes(), dtype));
          const Values dg = x.grad().to_vector();
          const Values dw = plain.grad().to_vector();
          for (std::size_t i = 0; i < dw.size(); ++i)
            CHECK((std::isnan(dw[i]) ? std::isnan(dg[i]) : dg[i] == dw[i]));
        };
        agree("x w", [](const Tensor& a, const Tensor& w) { return mul(a, w); });
        agree("w x", [](const Tensor& a, const Tensor& w) { return mul(w, a); });
        agree("x / w", [](const Tensor& a, const Tensor& w) { return div(a, w); });
        agree("w / x", [](const Tensor& a, const Tensor& w) { return div(w, a); });
        agree("x x", [](const Tensor& a, const Tensor& w) { return mul(a * w, a); });
      }
  // Ordinary factors leave the sum owed, and send nothing.
  const Tensor x(Array::from(terms, {6}, DType::F64),
                 ShardSpec::make(mesh_over(world, {world.size()}), {Partial()}, {6}));
  const Tensor factor = tensor(Values{1, 2, 3, -4, 0.5, 1}, {6}, DType::F64);
  const std::int64_t before = world.recorder().totals().calls;
  CHECK(mul(x, factor).spec()->has_partial());
  CHECK(div(x, factor).spec()->has_partial());
  CHECK(world.recorder().totals().calls == before);
}
