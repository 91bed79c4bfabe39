#include <limits>

#include "tests/ops_cases.h"

// Reductions, softmax and running sums.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

Dims some_sizes(Random& random, int least = 0) { return operand_sizes(random, {.least = least}); }

Dims some_dims(Random& random, const Dims& sizes) {
  Dims dims;
  for (int d = 0; d < sizes.size(); ++d)
    if (chance(random, 50)) dims.push_back(chance(random, 30) ? d - sizes.size() : d);
  return dims;
}

// Rows over the dims (over all if there are none) that have `least` values.
void lengthen_rows(Dims& sizes, const Dims& dims, std::int64_t least) {
  for (std::int64_t& n : sizes) n = std::max<std::int64_t>(n, 1);
  const int d = static_cast<int>(dims.empty() ? 0 : dims[0]);
  std::int64_t& n = sizes[d < 0 ? d + sizes.size() : d];
  n = std::max(n, least);
}

using Reduction1 = std::function<Tensor(const Tensor&, const Dims&, bool)>;

OpFamily reduction(const char* name, Reduction1 f, InputKind kind = InputKind::Any,
                   bool empty_allowed = true) {
  return {name, [=](Random& random) {
            Dims sizes = some_sizes(random);
            for (std::int64_t& n : sizes)
              if (!empty_allowed) n = std::max<std::int64_t>(n, 1);
            const Dims dims = some_dims(random, sizes);
            const bool keep = chance(random, 50);
            return OpCase{fmt::format("{} over {} keep {}", name, dims.str(), keep),
                          {{sizes, kind}},
                          [=](const Tensors& x) { return Tensors{f(x[0], dims, keep)}; },
                          kind != InputKind::Steps};
          }};
}

// Factors around 1, in some rows one or two zeros among them.
OpCase draw_prod(Random& random) {
  const Dims sizes = some_sizes(random);
  const Dims dims = some_dims(random, sizes);
  const bool keep = chance(random, 50);
  const bool zeros = chance(random, 50);
  return {fmt::format("prod {} over {} zeros {}", sizes.str(), dims.str(), zeros),
          {{sizes, zeros ? InputKind::Steps : InputKind::Positive}},
          [=](const Tensors& x) { return Tensors{prod(x[0], dims, keep)}; }};
}

OpCase draw_norm(Random& random) {
  Dims sizes = some_sizes(random);
  const double infinity = std::numeric_limits<double>::infinity();
  const double p = pick(random, std::vector<double>{2, 2, 2, 1, infinity, -infinity, 0, 3, 1.5, 0.5, 4, -1});
  for (std::int64_t& n : sizes)
    if (p < 0 || p == infinity) n = std::max<std::int64_t>(n, 1);
  const Dims dims = some_dims(random, sizes);
  const bool keep = chance(random, 50);
  const bool steps = p >= 1 && chance(random, 20);  // whole rows of 0, ties
  // Of one or two numbers near 0 the second derivative is 0 as a difference of very large ones.
  std::int64_t together = dims.empty() ? numel_of(sizes) : 1;
  for (const std::int64_t d : dims) together *= sizes[static_cast<int>(d < 0 ? d + sizes.size() : d)];
  return {fmt::format("norm {} of {} over {}", p, sizes.str(), dims.str()),
          {{sizes, steps                    ? InputKind::Steps
                   : p == 2 && together > 2 ? InputKind::Any
                                            : InputKind::Positive}},
          [=](const Tensors& x) { return Tensors{norm(x[0], p, dims, keep)}; },
          !steps};
}

// Less than the two values that a row has at least.
double some_correction(Random& random) {
  return chance(random, 70) ? static_cast<double>(random_int(random, 0, 1))
                            : random_constant(random, -1, 1.5);
}

OpCase draw_var(Random& random) {
  Dims sizes = some_sizes(random, 1);
  const Dims dims = some_dims(random, sizes);
  lengthen_rows(sizes, dims, 2);
  const bool keep = chance(random, 50);
  const double correction = some_correction(random);
  return {fmt::format("var of {} over {} correction {}", sizes.str(), dims.str(), correction),
          {{sizes}},
          [=](const Tensors& x) {
            const auto [v, m] = var_mean(x[0], dims, correction, keep);
            return Tensors{v, m, var(x[0], dims, correction, keep)};
          }};
}

// Of two elements it is a multiple of their distance: its second derivative is the difference of terms that
// grow as they come near each other, and float32 has nothing to say about it.
OpCase draw_std(Random& random) {
  Dims sizes = some_sizes(random, 1);
  const Dims dims = some_dims(random, sizes);
  lengthen_rows(sizes, dims, 3);
  const double correction = some_correction(random);
  return {fmt::format("std of {} over {} correction {}", sizes.str(), dims.str(), correction),
          {{sizes, InputKind::Distinct}},
          [=](const Tensors& x) { return Tensors{std(x[0], dims, correction)}; }};
}

OpCase draw_extremum_index(Random& random) {
  Dims sizes = some_sizes(random);
  for (std::int64_t& n : sizes) n = std::max<std::int64_t>(n, 1);
  std::optional<std::int64_t> dim;
  if (!sizes.empty() && chance(random, 70)) dim = random_int(random, -sizes.size(), sizes.size() - 1);
  const bool keep = chance(random, 50);
  const InputKind kind = chance(random, 50) ? InputKind::Steps : InputKind::Any;
  return {fmt::format("argmax, argmin of {} over {}", sizes.str(), dim ? *dim : -99),
          {{sizes, kind}},
          [=](const Tensors& x) {
            return Tensors{argmax(x[0], dim, keep), argmin(x[0], dim, keep)};
          },
          false};
}

OpCase draw_truth(Random& random) {
  const Dims sizes = some_sizes(random);
  const Dims dims = some_dims(random, sizes);
  const bool keep = chance(random, 50);
  return {"any, all, count_nonzero of " + sizes.str() + " over " + dims.str(),
          {{sizes, chance(random, 50) ? InputKind::Bool : InputKind::Steps}},
          [=](const Tensors& x) {
            return Tensors{any(x[0], dims, keep), all(x[0], dims, keep), count_nonzero(x[0], dims)};
          },
          false};
}

OpCase draw_cumsum(Random& random) {
  Dims sizes = some_sizes(random);
  if (!sizes.empty() && chance(random, 50)) sizes[0] = random_int(random, 5, 12);
  const int n = std::max(1, sizes.size());
  const std::int64_t dim = chance(random, 50) ? 0 : random_int(random, -n, n - 1);
  return {fmt::format("cumsum of {} along {}", sizes.str(), dim), {{sizes}}, [=](const Tensors& x) {
            return Tensors{cumsum(x[0], dim)};
          }};
}

}  // namespace

void add_reductions(std::vector<OpFamily>& list) {
  list.push_back(reduction("sum", [](const Tensor& x, const Dims& d, bool k) { return sum(x, d, k); }));
  list.push_back(reduction(
      "mean", [](const Tensor& x, const Dims& d, bool k) { return mean(x, d, k); }, InputKind::Any, false));
  list.push_back(reduction("amax", &amax, InputKind::Any, false));
  list.push_back(reduction("amin", &amin, InputKind::Any, false));
  list.push_back(reduction("amax of ties", &amax, InputKind::Steps, false));
  list.push_back(reduction("amin of ties", &amin, InputKind::Steps, false));
  list.push_back({"var", &draw_var});
  list.push_back({"std", &draw_std});
  list.push_back(reduction("logsumexp", &logsumexp));
  list.push_back({"norm", &draw_norm});
  list.push_back({"norm again", &draw_norm});
  list.push_back({"prod", &draw_prod});
  list.push_back({"argmax, argmin", &draw_extremum_index});
  list.push_back({"any, all", &draw_truth});
  list.push_back({"cumsum", &draw_cumsum});
  for (const bool logarithm : {false, true})
    list.push_back({logarithm ? "log_softmax" : "softmax", [logarithm](Random& random) {
                      const Dims sizes = some_sizes(random, 1);
                      const std::int64_t dim = random_int(random, -sizes.size(), sizes.size() - 1);
                      return OpCase{fmt::format("softmax over {}", dim), {{sizes}}, [=](const Tensors& x) {
                                      return Tensors{logarithm ? log_softmax(x[0], dim) : softmax(x[0], dim)};
                                    }};
                    }});
}

}  // namespace tessera::ops_cases
