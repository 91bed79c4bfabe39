// Tensors of integers and truth values where PyTorch computes with them, and numbers in the place of tensors:
// dtypes and values as PyTorch 2.15 gives them, whatever the placements.
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
constexpr DType kI32 = DType::I32;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Stored {
  const char* what;
  std::function<Tensor(const Tensor&)> call;
  DType dtype;
  Values values;
};

void check_stored(const Stored& c, const Tensor& x) {
  INFO(c.what << " of " << name_of(x.dtype()) << (x.is_sharded() ? " " + x.spec()->str() : " plain"));
  const Tensor y = c.call(x);
  CHECK(y.dtype() == c.dtype);
  const Values got = y.to_vector();
  REQUIRE(got.size() == c.values.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    if (std::isnan(c.values[i]))
      CHECK(std::isnan(got[i]));
    else if (std::isinf(c.values[i]) || !is_floating(c.dtype))
      CHECK(got[i] == c.values[i]);
    else
      CHECK(got[i] == Approx(c.values[i]).epsilon(1e-6).margin(1e-7));
  }
}

// Of a vector of these values.
void check_all(const std::vector<Stored>& cases, const Values& values, DType dtype, std::uint64_t stream) {
  auto random = test_random(stream);
  const Dims sizes{static_cast<std::int64_t>(values.size())};
  const Tensor whole = tensor(values, sizes, dtype);
  for (const Stored& c : cases) {
    check_stored(c, whole);
    for (const DeviceMesh& mesh : all_meshes())
      check_stored(c,
                   redistribute(whole, random_spec(random, mesh, sizes, {.partial = dtype != DType::Bool})));
  }
}

}  // namespace

TEST_CASE("functions of integers: floats where PyTorch makes floats, integers where it keeps them", "[ops]") {
  const std::vector<Stored> cases{
      {"abs", [](const Tensor& x) { return abs(x); }, DType::I32, {3, 1, 0, 1, 2}},
      {"square", &square, DType::I32, {9, 1, 0, 1, 4}},
      {"sign", &sign, DType::I32, {-1, -1, 0, 1, 1}},
      {"relu", &relu, DType::I32, {0, 0, 0, 1, 2}},
      {"exp",
       [](const Tensor& x) { return exp(x); },
       DType::F32,
       {0.049787067, 0.36787945, 1, 2.7182817, 7.3890562}},
      {"log", [](const Tensor& x) { return log(x); }, DType::F32, {kNan, kNan, -kInfinity, 0, 0.69314718}},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, DType::F32, {kNan, kNan, 0, 1, 1.41421354}},
      {"rsqrt", &rsqrt, DType::F32, {kNan, kNan, kInfinity, 1, 0.70710677}},
      {"sin",
       [](const Tensor& x) { return sin(x); },
       DType::F32,
       {-0.14112, -0.84147098, 0, 0.84147098, 0.90929743}},
      {"cos",
       [](const Tensor& x) { return cos(x); },
       DType::F32,
       {-0.9899925, 0.5403023, 1, 0.5403023, -0.41614684}},
      {"tanh",
       [](const Tensor& x) { return tanh(x); },
       DType::F32,
       {-0.99505478, -0.76159418, 0, 0.76159418, 0.96402758}},
      {"erf",
       [](const Tensor& x) { return erf(x); },
       DType::F32,
       {-0.99997789, -0.84270078, 0, 0.84270078, 0.99532229}},
      {"reciprocal", &reciprocal, DType::F32, {-0.33333334, -1, kInfinity, 1, 0.5}},
      {"sigmoid", &sigmoid, DType::F32, {0.047425874, 0.26894143, 0.5, 0.7310586, 0.88079703}},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }, DType::I32, {-1, -1, 0, 1, 1}},
      {"clamp below", [](const Tensor& x) { return clamp(x, -kInfinity, 0); }, DType::I32, {-3, -1, 0, 0, 0}},
      {"clamp above", [](const Tensor& x) { return clamp(x, 1, kInfinity); }, DType::I32, {1, 1, 1, 1, 2}},
      {"clamp to nothing", [](const Tensor& x) { return clamp(x, 2, -1); }, DType::I32, {-1, -1, -1, -1, -1}},
      {"clamp by fractions",
       [](const Tensor& x) { return clamp(x, -0.5, 1); },
       DType::F32,
       {-0.5, -0.5, 0, 1, 1}},
      {"pow 2", [](const Tensor& x) { return pow(x, 2); }, DType::I32, {9, 1, 0, 1, 4}},
      {"pow 3", [](const Tensor& x) { return pow(x, 3); }, DType::I32, {-27, -1, 0, 1, 8}},
      {"pow 0", [](const Tensor& x) { return pow(x, 0); }, DType::I32, {1, 1, 1, 1, 1}},
      {"pow 1/2", [](const Tensor& x) { return pow(x, 0.5); }, DType::F32, {kNan, kNan, 0, 1, 1.41421354}},
      // Over 2^31 they wrap.
      {"pow 35", [](const Tensor& x) { return pow(x, 35); }, DType::I32, {651126885, -1, 0, 1, 0}},
  };
  check_all(cases, {-3, -1, 0, 1, 2}, DType::I32, 95);
}

TEST_CASE("functions of truth values", "[ops]") {
  const std::vector<Stored> cases{
      {"square", &square, DType::I64, {1, 0}},
      {"sign", &sign, DType::Bool, {1, 0}},
      {"exp", [](const Tensor& x) { return exp(x); }, DType::F32, {2.7182817, 1}},
      {"log", [](const Tensor& x) { return log(x); }, DType::F32, {0, -kInfinity}},
      {"sigmoid", &sigmoid, DType::F32, {0.7310586, 0.5}},
      {"reciprocal", &reciprocal, DType::F32, {1, kInfinity}},
      {"clamp", [](const Tensor& x) { return clamp(x, 1, 3); }, DType::I64, {1, 1}},
      {"pow 2", [](const Tensor& x) { return pow(x, 2); }, DType::I64, {1, 0}},
      {"pow 0", [](const Tensor& x) { return pow(x, 0); }, DType::I64, {1, 1}},
  };
  check_all(cases, {1, 0}, DType::Bool, 96);
}

TEST_CASE("numbers beside integers", "[ops]") {
  const auto floor = RoundingMode::Floor;
  const auto trunc = RoundingMode::Trunc;
  const std::vector<Stored> cases{
      {"lt 1/2", [](const Tensor& x) { return lt(x, 0.5); }, DType::Bool, {1, 1, 1, 0, 0}},
      {"le 0", [](const Tensor& x) { return le(x, 0); }, DType::Bool, {1, 1, 1, 0, 0}},
      {"gt -1", [](const Tensor& x) { return gt(x, -1); }, DType::Bool, {0, 0, 1, 1, 1}},
      {"ge inf", [](const Tensor& x) { return ge(x, kInfinity); }, DType::Bool, {0, 0, 0, 0, 0}},
      {"eq 2", [](const Tensor& x) { return eq(x, 2); }, DType::Bool, {0, 0, 0, 0, 1}},
      {"ne 2.5", [](const Tensor& x) { return ne(x, 2.5); }, DType::Bool, {1, 1, 1, 1, 1}},
      {"where", [](const Tensor& x) { return where(gt(x, 0), x, 7); }, DType::I32, {7, 7, 7, 1, 2}},
      {"where not",
       [](const Tensor& x) { return where(gt(x, 0), 2.5, x); },
       DType::F32,
       {-3, -1, 0, 2.5, 2.5}},
      {"div trunc", [=](const Tensor& x) { return div(x, 2, trunc); }, DType::I32, {-1, 0, 0, 0, 1}},
      {"div floor", [=](const Tensor& x) { return div(x, 2, floor); }, DType::I32, {-2, -1, 0, 0, 1}},
      {"div floor by 2.5",
       [=](const Tensor& x) { return div(x, 2.5, floor); },
       DType::F32,
       {-2, -1, 0, 0, 0}},
      {"div floor by -2", [=](const Tensor& x) { return div(x, -2, floor); }, DType::I32, {1, 0, 0, -1, -1}},
      {"div floor by 0", [=](const Tensor& x) { return div(x, 0, floor); }, DType::I32, {-1, -1, -1, -1, -1}},
      {"div None",
       [](const Tensor& x) { return div(x, 2, RoundingMode::None); },
       DType::F32,
       {-1.5, -0.5, 0, 0.5, 1}},
      {"sub alpha", [](const Tensor& x) { return sub(x, x, 3); }, DType::I32, {6, 2, 0, -2, -4}},
  };
  check_all(cases, {-3, -1, 0, 1, 2}, DType::I32, 97);
  check_all({{"eq 1", [](const Tensor& x) { return eq(x, 1); }, DType::Bool, {1, 0}},
             {"eq 1/2", [](const Tensor& x) { return eq(x, 0.5); }, DType::Bool, {0, 0}},
             {"where", [](const Tensor& x) { return where(x, x, 2); }, DType::I64, {1, 2}}},
            {1, 0}, DType::Bool, 98);
  // The number is rounded to the tensor's dtype.
  check_all({{"eq 0.1", [](const Tensor& x) { return eq(x, 0.1); }, DType::Bool, {1, 0}}}, {0.1, 0.2},
            DType::BF16, 99);
}

TEST_CASE("rounded quotients of floats are those of the numbers, not of their rounded quotient", "[ops]") {
  const auto by = [](Values divisors, RoundingMode mode) {
    return [=](const Tensor& x) {
      return div(x, tensor(divisors, {static_cast<std::int64_t>(divisors.size())}, x.dtype()), mode);
    };
  };
  const Values a{-0.0, 0, 1, -1, kInfinity, kNan, 5, 1, -7.5};
  const Values b{3, -3, -kInfinity, kInfinity, 2, 2, -2, 0, 2};
  const Values tenths(4, 0.1);
  for (const DType dtype : {DType::F32, DType::F64}) {
    check_all(
        {{"floor", by(b, RoundingMode::Floor), dtype, {0, 0, -1, -1, kNan, kNan, -3, kInfinity, -4}},
         {"trunc", by(b, RoundingMode::Trunc), dtype, {0, 0, 0, 0, kInfinity, kNan, -2, kInfinity, -3}}},
        a, dtype, 100);
    // 0.1 is a little more than a tenth, in either dtype.
    check_all({{"tenths", by(tenths, RoundingMode::Floor), dtype, {9, 59, 4, 6}}}, {1, 6, 0.5, 0.7}, dtype,
              101);
  }
}

TEST_CASE("nothing flows back through a rounded quotient, and softplus has PyTorch's beta and threshold",
          "[ops]") {
  auto random = test_random(102);
  for (const DeviceMesh& mesh : all_meshes()) {
    const auto placed = [&](const Values& v) {
      const Dims sizes{static_cast<std::int64_t>(v.size())};
      return redistribute(tensor(v, sizes, DType::F64), random_spec(random, mesh, sizes))
          .detach()
          .set_requires_grad();
    };
    Tensor a = placed({5, -3, 0, 1});
    Tensor b = placed({2, 2, 0, 0});
    for (const RoundingMode mode : {RoundingMode::Floor, RoundingMode::Trunc}) {
      const Tensors g = grad({sum(div(a, b, mode))}, {a, b});
      for (const Tensor& d : g) CHECK(d.to_vector() == Values(4, 0.0));
    }
    Tensor x = placed({-1, 0, 1, 8, 11});
    const Tensor y = softplus(x, 2.0, 15.0);
    const Values want{0.06346400552148625, 0.34657359027997264, 1.0634640055214863, 8.0, 11.0};
    const Values slope{0.11920292202211755, 0.5, 0.8807970779778824, 1.0, 1.0};
    const Values got = y.to_vector();
    const Values got_slope = grad({sum(y)}, {x})[0].to_vector();
    for (std::size_t i = 0; i < want.size(); ++i) {
      CHECK(got[i] == Approx(want[i]).epsilon(1e-12));
      CHECK(got_slope[i] == Approx(slope[i]).epsilon(1e-12));
    }
  }
}

TEST_CASE("cat and stack of several dtypes give what they promote to, and gradients in each one's own",
          "[ops]") {
  auto random = test_random(103);
  for (const DeviceMesh& mesh : all_meshes()) {
    const auto placed = [&](const Values& v, DType dtype) {
      const Dims sizes{static_cast<std::int64_t>(v.size())};
      return redistribute(tensor(v, sizes, dtype),
                          random_spec(random, mesh, sizes, {.partial = dtype != DType::Bool}))
          .detach();
    };
    const Tensor i = placed({-3, 2, 5}, DType::I32);
    const Tensor l = placed({7, 1, 0}, DType::I64);
    const Tensor t = placed({1, 0, 1}, DType::Bool);
    Tensor h = placed({1, 0.5, 2}, DType::F16);
    Tensor f = placed({0.25, 4, -8}, DType::F32);
    CHECK(cat({t, i}).dtype() == DType::I32);
    CHECK(stack({t, l, i}).dtype() == DType::I64);
    CHECK(cat({placed({}, DType::F32), i}).dtype() == DType::F32);
    CHECK(cat({h, placed({1}, DType::BF16)}).dtype() == DType::F32);
    h.set_requires_grad();
    f.set_requires_grad();
    const Tensor y = cat({i, h, f, t});
    CHECK(y.dtype() == DType::F32);
    CHECK(y.to_vector() == Values{-3, 2, 5, 1, 0.5, 2, 0.25, 4, -8, 1, 0, 1});
    const Tensors g =
        grad({y}, {h, f}, {tensor(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1}, {12}, DType::F32)});
    CHECK(g[0].dtype() == DType::F16);
    CHECK(g[0].to_vector() == Values{4, 5, 6});
    CHECK(g[1].dtype() == DType::F32);
    CHECK(g[1].to_vector() == Values{7, 8, 9});
    const Tensor s = stack({f, h}, 1);
    CHECK(s.to_vector() == Values{0.25, 1, 4, 0.5, -8, 2});
    CHECK(grad({sum(s)}, {h})[0].dtype() == DType::F16);
  }
}

TEST_CASE("integers are padded in every way, bools by constants and around", "[ops]") {
  const Values rows{1, 2, 3, 4, 5, 6};
  const auto by = [](PadMode mode) {
    return [mode](const Tensor& x) { return pad(reshape(x, {1, 2, 3}), {2, 1}, mode); };
  };
  check_all({{"reflect", by(PadMode::Reflect), DType::I64, {3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5}},
             {"replicate", by(PadMode::Replicate), DType::I64, {1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 6, 6}},
             {"circular", by(PadMode::Circular), DType::I64, {2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6, 4}},
             {"constant", by(PadMode::Constant), DType::I64, {0, 0, 1, 2, 3, 0, 0, 0, 4, 5, 6, 0}},
             {"by less than nothing",
              [](const Tensor& x) {
                return pad(reshape(x, {1, 2, 3}), {1, -2}, PadMode::Reflect);
              },
              DType::I64,
              {2, 1, 5, 4}}},
            rows, DType::I64, 104);
  check_all({{"circular", by(PadMode::Circular), DType::Bool, {1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1}},
             {"constant", by(PadMode::Constant), DType::Bool, {0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0}}},
            {0, 1, 1, 1, 0, 1}, DType::Bool, 105);
}

TEST_CASE("split by one size", "[ops]") {
  const auto lengths = [](const Tensors& parts) {
    Values v;
    for (const Tensor& p : parts) v.push_back(static_cast<double>(p.size(0)));
    return v;
  };
  const Tensor x = zeros({5});
  CHECK(lengths(split(x, 2)) == Values{2, 2, 1});
  CHECK(lengths(split(x, 5)) == Values{5});
  CHECK(lengths(split(x, INT64_MAX)) == Values{5});
  CHECK(lengths(split(zeros({0}), 0)) == Values{0});
  CHECK(lengths(split(zeros({0}), 2)) == Values{0});
  CHECK_THROWS_WITH(split(x, {4}), Catch::Contains("1 sizes sum to 4"));
}

TEST_CASE("a dtype is what the input is cast to first, and what the result is", "[ops]") {
  using X = const Tensor&;
  check_all({{"sum", [](X x) { return sum(x); }, DType::I64, {2147483649}},
             {"sum i32", [](X x) { return sum(x, {}, false, kI32); }, kI32, {-2147483647}},
             {"sum f64", [](X x) { return sum(x, {0}, true, DType::F64); }, DType::F64, {2147483649}},
             {"sum bf16", [](X x) { return sum(x, {}, false, DType::BF16); }, DType::BF16, {2147483648}},
             {"sum bool", [](X x) { return sum(x, {}, false, DType::Bool); }, DType::Bool, {1}},
             {"cumsum i32",
              [](X x) { return cumsum(x, 0, kI32); },
              kI32,
              {2147483647, -2147483644, -2147483647, -2147483647}},
             {"cumsum f64",
              [](X x) { return cumsum(x, 0, DType::F64); },
              DType::F64,
              {2147483647, 2147483652, 2147483649, 2147483649}},
             {"mean", [](X x) { return mean(x, {}, false, DType::F64); }, DType::F64, {536870912.25}},
             {"prod bool", [](X x) { return prod(x, {}, false, DType::Bool); }, DType::Bool, {0}}},
            {2147483647, 5, -3, 0}, kI32, 104);
  check_all({{"prod", [](X x) { return prod(x); }, DType::I64, {9800000000}},
             {"prod i32", [](X x) { return prod(x, {}, false, kI32); }, kI32, {1210065408}},
             {"prod f32", [](X x) { return prod(x, {}, false, DType::F32); }, DType::F32, {9.8e9}}},
            {70000, 70000, 2}, kI32, 105);
  check_all({{"sum i64", [](X x) { return sum(x, {}, false, DType::I64); }, DType::I64, {2}},
             {"prod i32", [](X x) { return prod(x, {}, false, kI32); }, kI32, {-6}},
             {"cumsum i64", [](X x) { return cumsum(x, -1, DType::I64); }, DType::I64, {1, -1, 2}},
             {"sum bool", [](X x) { return sum(x, {}, false, DType::Bool); }, DType::Bool, {1}},
             {"softmax",
              [](X x) { return softmax(x, 0, DType::F64); },
              DType::F64,
              {0.181927846388, 0.0027281128662, 0.815344040746}}},
            {1.5, -2.7, 3}, DType::F32, 106);
  check_all({{"sum bool", [](X x) { return sum(x, {}, false, DType::Bool); }, DType::Bool, {1}},
             {"sum f32", [](X x) { return sum(x, {}, false, DType::F32); }, DType::F32, {2}},
             {"prod f16", [](X x) { return prod(x, {}, false, DType::F16); }, DType::F16, {0}},
             {"mean f32", [](X x) { return mean(x, {}, false, DType::F32); }, DType::F32, {2.0 / 3}},
             {"log_softmax",
              [](X x) { return log_softmax(x, 0, DType::F32); },
              DType::F32,
              {-1.86199474, -0.86199480, -0.86199480}}},
            {0, 1, 1}, DType::Bool, 107);
  // In half precision the sum would overflow on the way; cast, it does not.
  check_all({{"sum f32", [](X x) { return sum(x, {}, false, DType::F32); }, DType::F32, {180000}},
             {"mean f32", [](X x) { return mean(x, {}, false, DType::F32); }, DType::F32, {60000}}},
            {60000, 60000, 60000}, DType::F16, 108);
}

TEST_CASE("gradients through a dtype return in the input's own, twice too", "[ops]") {
  using Option = Tensor (*)(const Tensor&, DType);
  auto random = test_random(109);
  const std::pair<const char*, Option> options[] = {
      {"sum", [](const Tensor& x, DType t) { return square(sum(x, {1}, false, t)); }},
      {"mean", [](const Tensor& x, DType t) { return square(mean(x, {0}, true, t)); }},
      {"prod", [](const Tensor& x, DType t) { return prod(x, {1}, false, t); }},
      {"cumsum", [](const Tensor& x, DType t) { return square(cumsum(x, 1, t)); }},
      {"softmax", [](const Tensor& x, DType t) { return softmax(x, 1, t); }},
      {"log_softmax", [](const Tensor& x, DType t) { return log_softmax(x, 0, t); }}};
  Values values(12);
  for (double& v : values) v = static_cast<double>(random_int(random, 4, 20)) / 8.0;
  const Tensor whole = tensor(values, {3, 4}, DType::F32);
  const auto twice = [](Option f, Tensor x, DType dtype) {
    x = x.detach().set_requires_grad();
    const Tensor y = f(x, dtype);
    CHECK(y.dtype() == dtype);
    const Tensor g = grad({sum(square(y))}, {x}, {}, {.create_graph = true})[0];
    const Tensor second = grad({sum(square(g))}, {x})[0];
    return Tensors{y, g, second};
  };
  for (const auto& [name, f] : options)
    for (const DType dtype : {DType::F64, DType::BF16}) {
      const Tensors want = twice(f, to(whole, dtype), dtype);
      for (const DeviceMesh& mesh : all_meshes()) {
        const SpecPtr spec = random_spec(random, mesh, {3, 4}, {.partial = true});
        INFO(name << " as " << name_of(dtype) << " of " << spec->str());
        const Tensors got = twice(f, redistribute(whole, spec), dtype);
        CHECK(got[1].dtype() == DType::F32);
        CHECK(got[2].dtype() == DType::F32);
        const double eps = dtype == DType::F64 ? 1e-5 : 0.1;
        for (int i = 0; i < 3; ++i) {
          const Values a = got[i].to_vector();
          const Values b = want[i].to_vector();
          for (std::size_t at = 0; at < a.size(); ++at)
            CHECK(a[at] == Approx(b[at]).epsilon(eps).margin(eps));
        }
      }
    }
}
