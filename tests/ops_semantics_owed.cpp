// Sums that are owed: beside infinities products of matrices and convolutions give what one rank gives, and
// their gradients, too; choices leave them owed; where several must be made they are one message.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/adjoints.h"
#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensor& x, const Tensor& w)>;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Product {
  const char* name;
  Dims x, w;
  Function f;
};

const std::vector<Product>& products() {
  const auto einsum_of = [](const char* equation) {
    return [equation](const Tensor& x, const Tensor& w) { return einsum(equation, {x, w}); };
  };
  const auto conv_of = [](const ConvOptions& o) {
    return [o](const Tensor& x, const Tensor& w) { return conv(x, w, Tensor(), o); };
  };
  static const std::vector<Product> list{
      {"matmul", {4, 3}, {3, 5}, &matmul},
      {"matmul batch", {2, 4, 3}, {2, 3, 5}, &matmul},
      {"matmul broadcast", {2, 4, 3}, {3, 2}, &matmul},
      {"matmul vector", {4, 3}, {3}, &matmul},
      {"linear", {2, 5, 3}, {4, 3}, [](const Tensor& x, const Tensor& w) { return linear(x, w); }},
      {"linear bias",
       {5, 3},
       {4, 3},
       [](const Tensor& x, const Tensor& w) { return linear(x, w, ones({4}, x.dtype())); }},
      {"einsum", {4, 3}, {5, 3}, einsum_of("ik,jk->ji")},
      {"einsum batch", {3, 4, 2}, {4, 3, 2}, einsum_of("bik,ijk->bij")},
      {"conv1d", {2, 3, 9}, {2, 3, 2}, conv_of({})},
      {"conv2d", {2, 2, 8, 5}, {3, 2, 3, 2}, conv_of({})},
      {"conv2d strided", {1, 2, 9, 7}, {2, 2, 3, 3}, conv_of({.stride = {2}})},
      {"conv2d periodic", {1, 2, 7, 6}, {2, 2, 3, 3}, conv_of({.padding = {1}, .periodic = {0, 1}})},
      {"conv2d large", {1, 2, 24, 16}, {2, 2, 3, 3}, conv_of({})},
      {"conv2d depthwise", {2, 3, 6, 5}, {3, 1, 2, 2}, conv_of({.groups = 3})},
      {"conv2d bias",
       {1, 2, 7, 5},
       {2, 2, 3, 3},
       [](const Tensor& x, const Tensor& w) { return conv(x, w, ones({2}, x.dtype()), {}); }},
      {"conv3d", {1, 2, 5, 4, 4}, {2, 2, 2, 2, 2}, conv_of({})},
      {"conv_transpose1d",
       {2, 2, 7},
       {2, 3, 3},
       [](const Tensor& x, const Tensor& w) { return conv_transpose1d(x, w, Tensor()); }},
      {"conv_transpose2d",
       {1, 2, 6, 4},
       {2, 2, 3, 2},
       [](const Tensor& x, const Tensor& w) {
         return conv_transpose2d(x, w, ones({2}, x.dtype()), {.stride = {2}});
       }},
  };
  return list;
}

// Whole numbers, so that sums are exact in any order; none is 0. Some are infinite in one tensor of two.
Values random_values(Random& random, const Dims& sizes) {
  Values values(static_cast<std::size_t>(numel_of(sizes)));
  for (double& v : values) v = static_cast<double>(random_int(random, 1, 3)) * (chance(random, 50) ? 1 : -1);
  if (chance(random, 50))
    for (std::int64_t n = random_int(random, 1, 2); n > 0; --n)
      values[static_cast<std::size_t>(random_int(random, 0, numel_of(sizes) - 1))] =
          chance(random, 50) ? kInf : -kInf;
  return values;
}

// Terms of a finite sum have both signs, or are 0 but for the last.
Tensor sharded(Random& random, const DeviceMesh& mesh, const Dims& sizes, const Values& values, DType dtype) {
  const SpecPtr spec = random_spec(random, mesh, sizes, {.partial = true, .replicate_percent = 50});
  const double offset = chance(random, 50) ? 7 : 0;
  int first = 1;
  int last = 1;
  for (int a = 0; a < mesh.ndim(); ++a) {
    if (!spec->placement(a).is_partial()) continue;
    first = first != 0 && mesh.coordinate(a) == 0 ? 1 : 0;
    last = last != 0 && mesh.coordinate(a) + 1 == mesh.size(a) ? 1 : 0;
  }
  SpecPtr terms = spec;
  if (spec->has_partial()) {  // sums only
    Placements placements = spec->placements();
    for (Placement& p : placements)
      if (p.is_partial()) p = Partial();
    terms = with_placements(*spec, placements);
  }
  const SpecPtr whole = without_partial(*terms);
  Values own = expected_part(*whole, mesh.comm().rank(),
                             [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  if (terms->has_partial())
    for (double& v : own) v = (last != 0 ? v + offset : 0) - (first != 0 ? offset : 0);
  return Tensor(Array::from(own, terms->local_sizes(), dtype), terms);
}

std::string difference(const Tensor& got, const Tensor& want) {
  if (got.defined() != want.defined()) return "one is undefined";
  if (!got.defined()) return "";
  const Values g = got.to_vector();
  const Values w = want.to_vector();
  for (std::size_t i = 0; i < w.size(); ++i)
    if (std::isnan(w[i]) ? !std::isnan(g[i]) : g[i] != w[i])
      return fmt::format("element {}: {}, want {}", i, g[i], w[i]);
  return "";
}

// Results, first derivatives and derivatives of these.
Tensors all_of(const Function& f, Tensors inputs, const Tensors& factors) {
  for (Tensor& t : inputs) t = t.detach().set_requires_grad();
  const Tensor y = f(inputs[0], inputs[1]);
  Tensors all = grad({y}, {inputs[0], inputs[1]}, {inputs[2]}, {.create_graph = true});
  const Tensors second = grad(all, inputs, factors);
  all.insert(all.end(), second.begin(), second.end());
  all.push_back(y);
  return all;
}

}  // namespace

TEST_CASE("infinite factors in products and convolutions meet the sum that is owed, not its terms", "[ops]") {
  auto random = test_random(67);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (const Product& p : products())
    for (int trial = 0; trial < trials(60); ++trial) {
      const DeviceMesh& mesh = pick(random, meshes);
      const DType dtype = chance(random, 50) ? DType::F64 : DType::F32;
      const Dims y = p.f(zeros(p.x), zeros(p.w)).sizes();
      Tensors cut, plain, cut_factors, plain_factors;
      std::string text;
      const auto add_input = [&](const Dims& sizes, Tensors& cuts, Tensors& plains) {
        const Values values = random_values(random, sizes);
        cuts.push_back(sharded(random, mesh, sizes, values, dtype));
        plains.push_back(tensor(values, sizes, dtype));
        text += " " + cuts.back().spec()->str();
      };
      for (const Dims* sizes : {&p.x, &p.w, &y}) add_input(*sizes, cut, plain);
      for (const Dims* sizes : {&p.x, &p.w}) add_input(*sizes, cut_factors, plain_factors);
      const Tensors got = all_of(p.f, cut, cut_factors);
      const Tensors want = all_of(p.f, plain, plain_factors);
      REQUIRE(got.size() == want.size());
      static const std::array<const char*, 6> names{"dx", "dw", "dx of these", "dw of these", "ddy", "y"};
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(p.name << " trial " << trial << " in " << name_of(dtype) << " " << names[i] << text);
        CHECK(difference(got[i], want[i]) == "");
      }
    }
}

TEST_CASE("choices among sums that are owed stay owed", "[ops]") {
  const DeviceMesh mesh = all_meshes().front();
  const Dims sizes{3, 4};
  const SpecPtr owed = ShardSpec::make(mesh, {Partial()}, sizes);
  const Tensor x(Array::full(sizes, 1.5, DType::F64), owed);
  const Tensor y(Array::full(sizes, -2, DType::F64), owed);
  const Tensor whole = full(sizes, 5, DType::F64);
  const Tensor some = tensor(Values{1, 0, 0, 1}, {4}, DType::Bool);
  const double n = test_world().size();
  const Recorder& recorder = test_world().recorder();
  const std::int64_t before = recorder.totals().calls;
  const Tensor both = where(some, x, y);
  const Tensor one = where(some, whole, y);
  const Tensor joined = cat({whole, x}, 0);
  CHECK(recorder.totals().calls == before);
  for (const Tensor* t : {&both, &one, &joined}) CHECK(t->spec()->has_partial());
  const Values row{1.5 * n, -2 * n, -2 * n, 1.5 * n};
  const Values mixed{5, -2 * n, -2 * n, 5};
  const Values got = both.to_vector();
  const Values got_one = one.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == row[i % 4]);
    CHECK(got_one[i] == mixed[i % 4]);
  }
  CHECK(slice(joined, 0, 0, 3).to_vector() == Values(12, 5));
  CHECK(slice(joined, 0, 3, 6).to_vector() == Values(12, 1.5 * n));
}

TEST_CASE("two sums that must be made are made in one message, one that comes twice once", "[ops]") {
  const DeviceMesh mesh = all_meshes().front();
  const bool alone = test_world().size() == 1;
  const auto owed = [&](const Dims& sizes, double value) {
    return Tensor(Array::full(sizes, value, DType::F32), ShardSpec::make(mesh, {Partial()}, sizes))
        .set_requires_grad();
  };
  const Tensor x = owed({3, 4}, 1);
  const Tensor y = owed({4}, 2);
  const double n = test_world().size();
  Recorder& recorder = test_world().recorder();
  using Sent = std::pair<std::int64_t, std::int64_t>;
  const auto reductions = [&](const std::function<Tensor()>& f, double want) {
    recorder.start();
    const Tensor made = f();
    recorder.stop();
    CHECK(made.spec()->is_replicated());
    for (const double v : made.to_vector()) CHECK(v == want);
    CHECK(recorder.count("all_reduce") == static_cast<std::int64_t>(recorder.records().size()));
    return Sent{recorder.count("all_reduce"), recorder.bytes("all_reduce")};
  };
  const auto made = [&](const Tensor& t) {
    return [&] { return redistribute(t, ShardSpec::replicated(mesh, t.sizes())); };
  };
  const Sent just_x = reductions(made(x), n);
  const Sent both{just_x.first, just_x.second + reductions(made(y), 2 * n).second};
  CHECK(just_x.first == (alone ? 0 : 1));
  CHECK(reductions([&] { return maximum(x, y); }, 2 * n) == both);
  CHECK(reductions([&] { return minimum(x, y); }, n) == Sent{0, 0});  // both have been made
  // Of others on the same memory nothing has been made.
  CHECK(reductions([&] { return minimum(x.detach(), y.detach()); }, n) == both);
  CHECK(reductions([&] { return to(lt(x.detach(), y.detach()), DType::F32); }, 1) == both);
  const Tensor twice = x.detach();
  CHECK(reductions([&] { return maximum(twice, twice); }, n) == just_x);
  // Each term's gradient is the whole.
  sum(maximum(x, y)).backward();
  CHECK(x.grad().to_vector() == Values(12, 0));
  CHECK(y.grad().to_vector() == Values(4, 3));
}

TEST_CASE("a number added to a sum that is owed counts once: the sum stays owed, nothing is sent", "[ops]") {
  auto random = test_random(68);
  const std::vector<DeviceMesh> meshes = all_meshes();
  struct Shifted {
    const char* what;
    double scale, shift;
    Tensor (*f)(const Tensor&);
  };
  const std::vector<Shifted> list{{"x + 2", 1, 2, [](const Tensor& x) { return x + 2.0; }},
                                  {"1 - x", -1, 1, [](const Tensor& x) { return 1.0 - x; }},
                                  {"x - 3", 1, -3, [](const Tensor& x) { return x - 3.0; }},
                                  {"5 - 2x", -2, 5, [](const Tensor& x) { return affine(x, -2, 5); }},
                                  {"x + inf", 1, kInf, [](const Tensor& x) { return x + kInf; }}};
  Recorder& recorder = test_world().recorder();
  for (const Shifted& s : list)
    for (int trial = 0; trial < trials(20); ++trial) {
      const DeviceMesh& mesh = pick(random, meshes);
      const DType dtype = chance(random, 30) && s.shift != kInf ? DType::I64 : DType::F64;
      const Dims sizes = random_sizes(random, 2, 5);
      Values values(static_cast<std::size_t>(numel_of(sizes)));
      for (double& v : values) v = static_cast<double>(random_int(random, -4, 4));
      Tensor x = sharded(random, mesh, sizes, values, dtype);
      INFO(s.what << " trial " << trial << " in " << name_of(dtype) << " " << x.spec()->str());
      if (dtype == DType::F64) x.set_requires_grad();
      const std::int64_t before = recorder.totals().calls;
      const Tensor y = s.f(x);
      CHECK(recorder.totals().calls == before);
      CHECK(y.spec() == x.spec());
      Values want;
      for (const double v : values) want.push_back(s.scale * v + s.shift);
      CHECK(y.to_vector() == want);
      if (dtype != DType::F64) continue;
      const SpecPtr whole = without_partial(*x.spec());
      const auto slope = [](std::int64_t i) { return static_cast<double>(i + 1); };
      const Tensor dy(local_part(*whole, mesh.comm().rank(), slope, dtype), whole);
      const std::int64_t forward = recorder.totals().calls;
      y.backward(dy);
      CHECK(recorder.totals().calls == forward);
      Values gradient;
      for (std::size_t i = 0; i < values.size(); ++i)
        gradient.push_back(s.scale * static_cast<double>(i + 1));
      CHECK(x.grad().to_vector() == gradient);
    }
}
