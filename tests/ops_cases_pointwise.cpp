#include <limits>

#include "tests/ops_cases.h"

// Element-wise operations, norms and losses.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

Dims some_sizes(Random& random, int least = 0, int most = 3, std::int64_t longest = 5) {
  return operand_sizes(random, {least, most, longest});
}

using Unary = std::function<Tensor(const Tensor&)>;

OpFamily unary(const char* name, Unary f, InputKind kind = InputKind::Any) {
  return {name, [name, f, kind](Random& random) {
            const Dims sizes = some_sizes(random);
            return OpCase{name, {{sizes, kind}}, [f](const Tensors& x) { return Tensors{f(x[0])}; }};
          }};
}

// With a constant that is drawn.
using WithConstant = std::function<Tensor(const Tensor&, double)>;

OpFamily with_constant(const char* name, std::function<double(Random&)> draw, WithConstant f,
                       InputKind kind = InputKind::Any) {
  return {name, [=](Random& random) {
            const Dims sizes = some_sizes(random);
            const double constant = draw(random);
            return OpCase{fmt::format("{} {}", name, constant),
                          {{sizes, kind}},
                          [f, constant](const Tensors& x) { return Tensors{f(x[0], constant)}; }};
          }};
}

// Now and then open at one end.
OpCase clamp_case(Random& random) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Dims sizes = some_sizes(random);
  const std::int64_t open = random_int(random, 0, 5);
  const double min = open == 0 ? -infinity : random_constant(random, -1.5, 0.5);
  const double max = open == 1 ? infinity : random_constant(random, 0.5, 1.5);
  return {fmt::format("clamp from {} to {}", min, max), {{sizes, InputKind::Coarse}}, [=](const Tensors& x) {
            return Tensors{clamp(x[0], min, max)};
          }};
}

// Of any number, those that are whole and positive; every one of positive numbers, those with kernels of
// their own more often.
double whole_exponent(Random& random) { return static_cast<double>(random_int(random, 0, 5)); }
double any_exponent(Random& random) {
  if (chance(random, 30)) return pick(random, std::vector<double>{-2, -1, -0.5, 0, 0.5, 1, 2, 3});
  return random_constant(random, -2.5, 3.5);
}

// Sizes that broadcast to `out`: leading dims missing, dims of one.
Dims shrunk(Random& random, const Dims& out) {
  Dims sizes;
  const int from = static_cast<int>(random_int(random, 0, out.size()));
  for (int d = chance(random, 60) ? 0 : from; d < out.size(); ++d)
    sizes.push_back(chance(random, 25) ? 1 : out[d]);
  return sizes;
}

using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

OpFamily binary(const char* name, Binary f, InputKinds kinds = {}, bool smooth = true) {
  return {name, [=](Random& random) {
            const Dims out = some_sizes(random);
            Dims a = out;
            Dims b = out;
            (chance(random, 50) ? a : b) = shrunk(random, out);
            if (chance(random, 20)) a = shrunk(random, a);
            // Both may have lost one dim, or one may be 0 where the other is 1: still what broadcasting
            // allows.
            return OpCase{fmt::format("{} {} {}", name, a.str(), b.str()),
                          {{a, kinds.first}, {b, kinds.second}},
                          [f](const Tensors& x) { return Tensors{f(x[0], x[1])}; },
                          smooth};
          }};
}

void add_unary(std::vector<OpFamily>& list) {
  const InputKind positive = InputKind::Positive;
  const InputKind coarse = InputKind::Coarse;
  list.push_back(unary("relu", &relu, coarse));
  list.push_back(unary("gelu", [](const Tensor& x) { return gelu(x); }));
  list.push_back(unary("gelu tanh", [](const Tensor& x) { return gelu(x, GeluKind::Tanh); }));
  list.push_back(unary("silu", &silu));
  list.push_back(unary("sigmoid", &sigmoid));
  list.push_back(unary("tanh", [](const Tensor& x) { return tanh(x); }));
  list.push_back(unary("exp", [](const Tensor& x) { return exp(x); }));
  list.push_back(unary(
      "log", [](const Tensor& x) { return log(x); }, positive));
  list.push_back(unary(
      "sqrt", [](const Tensor& x) { return sqrt(x); }, positive));
  list.push_back(unary("rsqrt", &rsqrt, positive));
  list.push_back(unary(
      "abs", [](const Tensor& x) { return abs(x); }, coarse));
  list.push_back(unary("neg", &neg));
  list.push_back(unary("square", &square));
  list.push_back(unary("sin", [](const Tensor& x) { return sin(x); }));
  list.push_back(unary("cos", [](const Tensor& x) { return cos(x); }));
  list.push_back(unary("erf", [](const Tensor& x) { return erf(x); }));
  list.push_back(unary("softplus", [](const Tensor& x) { return softplus(x); }));
  list.push_back(unary("softplus of beta and threshold", [](const Tensor& x) {
    return softplus(x, 3.0, 40.0) + softplus(x * 8.0, 4.0, 24.0) + softplus(x, -0.5, -20.0);
  }));
  list.push_back(unary("reciprocal", &reciprocal, positive));
  const auto slope = [](Random& random) { return random_constant(random, -0.5, 1.5); };
  list.push_back(with_constant("leaky_relu", slope, &leaky_relu, coarse));
  list.push_back(with_constant("elu", slope, &elu, coarse));
  list.push_back({"clamp", &clamp_case});
  const auto raised = [](const Tensor& x, double exponent) { return pow(x, exponent); };
  list.push_back(with_constant("pow of any number", &whole_exponent, raised));
  list.push_back(with_constant("pow of positive numbers", &any_exponent, raised, positive));
  list.push_back(with_constant(
      "pow of a number", [](Random& random) { return random_constant(random, 0.5, 2.5); },
      [](const Tensor& x, double base) { return pow(base, x); }));
  list.push_back(unary("affine", [](const Tensor& x) { return affine(x, -1.5, 0.25); }));
  list.push_back(unary("scaled", [](const Tensor& x) { return 2.0 - x / 3.0; }));
  list.push_back(unary("sign", [](const Tensor& x) { return sign(x) * x; }));
  list.push_back(unary("contiguous", &contiguous));
  list.push_back({"dropout", [](Random& random) {
                    const Dims sizes = some_sizes(random);
                    const std::uint64_t seed = random();
                    return OpCase{"dropout", {{sizes}}, [seed](const Tensors& x) {
                                    Generator g(seed);
                                    return Tensors{dropout(x[0], 0.4, g), dropout(x[0], 0.2, g)};
                                  }};
                  }});
}

// Between bounds that are apart, and of which one is left out; or whole numbers, of which many are equal and
// many bounds cross.
OpCase clamp_by_tensors(Random& random, bool ties) {
  const Dims out = some_sizes(random);
  const Dims x = chance(random, 50) ? out : shrunk(random, out);
  const Dims min = shrunk(random, out);
  const Dims max = shrunk(random, out);
  const std::int64_t given = random_int(random, 0, 3);  // both twice as often
  const auto call = [=](const Tensors& in) {
    const Tensor low = ties ? in[1] : in[1] - 1.0;
    const Tensor high = ties ? in[2] : in[2] + 1.0;
    return Tensors{given == 1   ? clamp(in[0], low)
                   : given == 2 ? clamp(in[0], {}, high)
                                : clamp(in[0], low, high)};
  };
  const auto kind = [&](InputKind apart) { return ties ? InputKind::Steps : apart; };
  return {fmt::format("clamp {} by {} and {}, {}", x.str(), min.str(), max.str(), given),
          {{x, kind(InputKind::Coarse)}, {min, kind(InputKind::Between)}, {max, kind(InputKind::Distinct)}},
          call,
          !ties};
}

void add_binary(std::vector<OpFamily>& list) {
  constexpr InputKinds kTies{InputKind::Steps, InputKind::Steps};
  list.push_back(binary("add", [](const Tensor& a, const Tensor& b) { return add(a, b, -0.5); }));
  list.push_back(binary("sub", [](const Tensor& a, const Tensor& b) { return sub(a, b, 1.5); }));
  list.push_back(binary("mul", &mul));
  list.push_back(binary(
      "div", [](const Tensor& a, const Tensor& b) { return a / b; },
      InputKinds(InputKind::Positive, InputKind::Positive)));
  list.push_back(binary("maximum", &maximum, kApart));
  list.push_back(binary("minimum", &minimum, kApart));
  list.push_back(binary("maximum of ties", &maximum, kTies, false));
  list.push_back(binary("minimum of ties", &minimum, kTies, false));
  list.push_back(binary(
      "comparisons",
      [](const Tensor& a, const Tensor& b) {
        const auto n = [](const Tensor& t) { return to(t, DType::F64); };
        return n(eq(a, b)) + n(ne(a, b)) * 2.0 + n(lt(a, b)) * 4.0 + n(le(a, b)) * 8.0 + n(gt(a, b)) * 16.0 +
               n(ge(a, b)) * a;
      },
      kTies, false));
  list.push_back(binary(
      "comparisons with a number",
      [](const Tensor& a, const Tensor& b) {
        const auto n = [](const Tensor& t) { return to(t, DType::F64); };
        return n(eq(a, 1.0)) + n(ne(b, 0.0)) * 2.0 + n(lt(a, 1.0)) * 4.0 + n(le(b, -1.0)) * 8.0 +
               n(gt(a, 0.5)) * 16.0 + n(ge(b, 0.0)) * a;
      },
      kTies, false));
  list.push_back(binary(
      "pow of two tensors", [](const Tensor& a, const Tensor& b) { return pow(a, b); },
      InputKinds(InputKind::Positive, InputKind::Any)));
  for (const bool ties : {false, true})
    list.push_back({ties ? "clamp by tensors, ties" : "clamp by tensors",
                    [ties](Random& random) { return clamp_by_tensors(random, ties); }});
  // Quotients of whole numbers and of what lies between them; no step of a finite difference crosses one.
  list.push_back(binary(
      "div rounded",
      [](const Tensor& a, const Tensor& b) {
        return div(a, b, RoundingMode::Floor) + div(b, a, RoundingMode::Trunc) * 8.0 +
               div(a, 0.75, RoundingMode::Trunc) * 64.0 + a * b;
      },
      InputKinds(InputKind::Positive, InputKind::Positive), false));
  list.push_back({"where with a number", [](Random& random) {
                    const Dims out = some_sizes(random);
                    return OpCase{"where with a number",
                                  {{shrunk(random, out), InputKind::Bool}, {out}},
                                  [](const Tensors& x) {
                                    return Tensors{where(x[0], x[1], 1.5) * where(x[0], -2.5, x[1])};
                                  }};
                  }});
  list.push_back({"where", [](Random& random) {
                    const Dims out = some_sizes(random);
                    return OpCase{"where",
                                  {{shrunk(random, out), InputKind::Bool}, {out}, {shrunk(random, out)}},
                                  [](const Tensors& x) { return Tensors{where(x[0], x[1], x[2])}; }};
                  }});
}

// The last dims of `sizes`, from some dim on, over which rows are normalised: made 2 at least.
Dims normalized_dims(Random& random, Dims& sizes) {
  Dims shape;
  const int from = static_cast<int>(random_int(random, 0, sizes.size() - 1));
  for (int d = from; d < sizes.size(); ++d) shape.push_back(sizes[d] = std::max<std::int64_t>(sizes[d], 2));
  return shape;
}

void add_norms_and_losses(std::vector<OpFamily>& list) {
  list.push_back({"sum_to_size", [](Random& random) {
                    const Dims sizes = some_sizes(random);
                    const Dims less = shrunk(random, sizes);
                    return OpCase{"sum_to_size " + less.str(), {{sizes}}, [less](const Tensors& x) {
                                    return Tensors{sum_to_size(x[0], less)};
                                  }};
                  }});
  list.push_back({"layer_norm", [](Random& random) {
                    Dims sizes = some_sizes(random, 1);
                    const Dims shape = normalized_dims(random, sizes);
                    const double eps = random_constant(random, 0, 0.2);
                    OpCase c{fmt::format("layer_norm {} eps {}", shape.str(), eps), {{sizes}}, {}};
                    const bool affine_part = chance(random, 70);
                    if (affine_part) c.inputs.insert(c.inputs.end(), {{shape}, {shape}});
                    c.call = [=](const Tensors& x) {
                      return Tensors{affine_part ? layer_norm(x[0], shape, x[1], x[2], eps)
                                                 : layer_norm(x[0], shape, Tensor(), Tensor(), eps)};
                    };
                    return c;
                  }});
  list.push_back(
      {"add_layer_norm", [](Random& random) {
         Dims sizes = some_sizes(random, 1);
         const Dims shape = normalized_dims(random, sizes);
         const double eps = random_constant(random, 0, 0.2);
         OpCase c{fmt::format("add_layer_norm {} eps {}", shape.str(), eps), {{sizes}, {sizes}}, {}};
         const bool affine_part = chance(random, 70);
         if (affine_part) c.inputs.insert(c.inputs.end(), {{shape}, {shape}});
         const std::int64_t used = random_int(random, 0, 2);  // both, the sum alone, the norm alone
         c.call = [=](const Tensors& x) {
           AddLayerNormOptions options{.eps = eps};
           if (affine_part) options = {x[2], x[3], eps};
           const auto [sum, norm] = add_layer_norm(x[0], x[1], shape, options);
           if (used == 1) return Tensors{sum};
           return used == 2 ? Tensors{norm} : Tensors{sum, norm};
         };
         return c;
       }});
  list.push_back({"mse_loss", [](Random& random) {
                    Dims sizes = some_sizes(random);
                    for (std::int64_t& n : sizes) n = std::max<std::int64_t>(n, 1);
                    return OpCase{"mse_loss", {{sizes}, {sizes}}, [](const Tensors& x) {
                                    return Tensors{mse_loss(x[0], x[1]), mse_loss(x[0], x[1], Reduction::Sum),
                                                   mse_loss(x[0], x[1], Reduction::None)};
                                  }};
                  }});
}

}  // namespace

void add_pointwise(std::vector<OpFamily>& list) {
  add_unary(list);
  add_binary(list);
  add_norms_and_losses(list);
}

}  // namespace tessera::ops_cases
