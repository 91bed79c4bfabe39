#include "autograd/gradcheck.h"

#include <cmath>
#include <random>

#include "runtime/error.h"

namespace tessera {
namespace {

// Position of a global element in the local array of this rank, or -1.
std::int64_t local_offset(const Tensor& t, std::int64_t linear) {
  const Dims& sizes = t.sizes();
  std::int64_t offset = t.local().offset();
  std::int64_t rest = linear;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    const std::int64_t g = rest % sizes[d];
    rest /= sizes[d];
    std::int64_t at = -1;
    std::int64_t base = 0;
    const Intervals whole{{0, sizes[d]}};
    for (Interval i : t.is_sharded() ? t.spec()->intervals(d) : whole) {
      if (g >= i.lo && g < i.hi) at = base + g - i.lo;
      base += i.length();
    }
    if (at < 0) return -1;
    offset += at * t.local().stride(d);
  }
  return offset;
}

void nudge(const Tensor& t, std::int64_t linear, double delta) {
  t.bump_version();  // on every rank: what is kept of t goes on all of them
  const std::int64_t at = local_offset(t, linear);
  if (at < 0) return;
  static_cast<double*>(t.local().storage()->data())[at] += delta;
}

double dot(const Tensors& outputs, const std::vector<std::vector<double>>& cotangents) {
  double sum = 0;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].defined()) continue;
    const std::vector<double> v = outputs[o].to_vector();
    for (std::size_t i = 0; i < v.size(); ++i) sum += v[i] * cotangents[o][i];
  }
  return sum;
}

struct Cotangents {
  Tensors tensors;
  std::vector<std::vector<double>> values;
};

Cotangents random_cotangents(const Tensors& outputs, std::uint64_t seed) {
  Cotangents c;
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const Tensor& o : outputs) {
    std::vector<double> v(static_cast<std::size_t>(o.defined() ? o.numel() : 0));
    for (double& x : v) x = uniform(rng);
    c.tensors.push_back(o.defined() ? Tensor(Array::from(v, o.sizes(), DType::F64)) : Tensor());
    c.values.push_back(std::move(v));
  }
  return c;
}

using Function = std::function<Tensors(const Tensors&)>;

// Gradients by the tape; outputs without a history give none (and finite differences say whether that is
// right).
Tensors analytic_gradients(const Tensors& outputs, const Tensors& checked, const Tensors& cotangents,
                           const BackwardOptions& options = {}) {
  Tensors roots;
  Tensors theirs;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].requires_grad()) continue;
    roots.push_back(outputs[o]);
    theirs.push_back(cotangents[o]);
  }
  return roots.empty() ? Tensors(checked.size()) : grad(roots, checked, theirs, options);
}

GradcheckResult compare(const Function& f, const Tensors& inputs, const Tensors& checked,
                        const GradcheckOptions& options) {
  GradcheckResult result;
  const Tensors outputs = f(inputs);
  const Cotangents c = random_cotangents(outputs, options.seed);
  const Tensors analytic = analytic_gradients(outputs, checked, c.tensors);
  for (std::size_t k = 0; k < checked.size(); ++k) {
    const std::int64_t n = checked[k].numel();
    const std::vector<double> g = analytic[k].defined()
                                      ? analytic[k].to_vector()
                                      : std::vector<double>(static_cast<std::size_t>(n), 0.0);
    const std::int64_t stride =
        options.max_elements > 0 ? std::max<std::int64_t>(1, n / options.max_elements) : 1;
    for (std::int64_t i = 0; i < n; i += stride) {
      nudge(checked[k], i, options.step);
      const double up = dot(f(inputs), c.values);
      nudge(checked[k], i, -2 * options.step);
      const double down = dot(f(inputs), c.values);
      nudge(checked[k], i, options.step);
      const double numeric = (up - down) / (2 * options.step);
      const double got = g[static_cast<std::size_t>(i)];
      const double error = std::abs(got - numeric) / std::max(1.0, std::abs(numeric));
      if (error <= result.worst && std::isfinite(error)) continue;
      result.worst = std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
      if (!(error <= options.tolerance)) {
        result.ok = false;
        result.message = fmt::format("input {}, element {} of {}: gradient {}, finite difference {}", k, i,
                                     checked[k].sizes().str(), got, numeric);
      }
    }
  }
  return result;
}

}  // namespace

GradcheckResult gradcheck(const Function& f, const Tensors& inputs, const GradcheckOptions& options) {
  Tensors checked;
  for (const Tensor& t : inputs) {
    if (!t.requires_grad()) continue;
    TS_CHECK(t.is_leaf() && t.dtype() == DType::F64, "gradcheck", "inputs must be float64 leaves, given {}",
             name_of(t.dtype()));
    checked.push_back(t);
  }
  TS_CHECK(!checked.empty(), "gradcheck", "no input requires a gradient");
  GradcheckResult first = compare(f, inputs, checked, options);
  if (!first.ok || !options.second) return first;
  // The gradients themselves, as a function of the inputs, with fixed cotangents.
  const Cotangents c = random_cotangents(f(inputs), options.seed + 1);
  const Function gradients = [&](const Tensors& in) {
    const GradMode on(true);
    BackwardOptions create;
    create.create_graph = true;
    Tensors g = analytic_gradients(f(in), checked, c.tensors, create);
    std::erase_if(g, [](const Tensor& t) { return !t.defined(); });
    return g;
  };
  GradcheckResult second = compare(gradients, inputs, checked, options);
  if (!second.ok) second.message = "second derivative: " + second.message;
  return second;
}

}  // namespace tessera
