#include <array>
#include <limits>

#include "autograd/adjoints.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/indexing/indexing.h"
#include "ops/norm/channel_norm.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

Tensor without_owed(const Tensor& t) {
  return t.is_sharded() && t.spec()->has_partial() ? settled(t, without_partial(*t.spec())) : t;
}

// The sum over the ranks of `group`, whose tensors are not one global tensor but equal in placement. Every
// rank's loss depends on every rank's term, so the gradient is the same sum.
Tensor sum_over(const Communicator& group, const Tensor& t) {
  const Array total = t.local().clone();
  group.all_reduce(total, ReduceOp::Sum).wait();
  Tensor y = t.is_sharded() ? Tensor(total, t.spec()) : Tensor(total);
  record_simple("sum_over_batch", {&t, 1}, {&y, 1},
                [group, spec = t.spec()](const BackwardContext&, const Tensors& g) {
                  return Tensors{sum_over(group, spec ? redistribute(g[0], spec) : g[0].full_tensor())};
                });
  return y;
}

// Statistics written with ops.
class Composer {
 public:
  Composer(const ChannelNorm& n, const Tensor& x, const Tensor& statistics)
      : n_(n), count_(statistics_count(n, statistics)), group_(shared_group(n, x.spec().get())) {
    spatial_ = Dims::filled(n.sizes.size(), 1);
    for (int d = 2; d < n.sizes.size(); ++d) inner_.push_back(d);
  }

  // Means over what a statistic is of, as wide as broadcasting needs; all in one message.
  Tensors means(const Tensors& terms) const {
    Tensors sums;
    for (const Tensor& t : terms)
      sums.push_back(unsqueeze(inner_.empty() ? t : sum(t, inner_), 0));  // [1, N, C]
    Tensor all = folded(sums.size() == 1 ? sums[0] : cat(sums, 0));
    all = without_owed(all * (1.0 / std::max(count_, 1.0)));
    if (group_.defined()) all = sum_over(group_, all);
    const Tensor wide = spread(all);
    Tensors parts;
    for (std::size_t i = 0; i < terms.size(); ++i)
      parts.push_back(
          over_channels(slice(wide, 0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1)));
    return parts;
  }

  // Row `term` of the saved statistics.
  Tensor saved(const Tensor& statistics, std::int64_t term) const {
    const Tensor row = slice(statistics, 0, term, term + 1);
    const std::int64_t samples = n_.per_sample ? n_.sizes[0] : 1;
    return over_channels(spread(reshape(row, {1, samples, n_.groups, 1})));
  }

  // [C] beside x.
  Tensor beside(const Tensor& vector) const {
    Dims sizes = spatial_;
    sizes[1] = n_.sizes[1];
    return reshape(vector, sizes);
  }

  Tensor over_all_but_channels(const Tensor& t) const {
    Dims dims = inner_;
    dims.push_back(0);
    return sum(t, dims);
  }

 private:
  // [k, N, C] -> sums over samples or groups of channels [k, N or 1, groups, 1].
  Tensor folded(const Tensor& t) const {
    const std::int64_t k = t.size(0);
    if (!n_.per_sample) return reshape(sum(t, {1}, true), {k, 1, n_.groups, 1});
    return sum(reshape(t, {k, n_.sizes[0], n_.groups, n_.sizes[1] / n_.groups}), {3}, true);
  }
  // Back to [k, N or 1, C].
  Tensor spread(const Tensor& t) const {
    const std::int64_t size = n_.sizes[1] / n_.groups;
    return reshape(expand(t, {t.size(0), t.size(1), n_.groups, size}), {t.size(0), t.size(1), n_.sizes[1]});
  }
  // [1, N or 1, C] beside x.
  Tensor over_channels(const Tensor& t) const {
    Dims sizes = spatial_;
    sizes[0] = t.size(1);
    sizes[1] = t.size(2);
    return reshape(t, sizes);
  }

  const ChannelNorm& n_;
  double count_;
  Communicator group_;
  Dims spatial_;
  Dims inner_;
};

struct Normal {
  Tensor x;  // normalised
  Tensor rstd;
};

// The root's reciprocal is 0 for those that NormEps takes for flat, and has no gradient.
Tensor flat_made_infinite(const Tensor& variance, const Composer& composer, const Tensor& statistics) {
  const double spacing = statistics.dtype() == DType::F64 ? std::numeric_limits<double>::epsilon()
                                                          : std::numeric_limits<float>::epsilon();
  const NoGrad guard;
  const Tensor least = square(composer.saved(statistics, 0) * (0.25 * spacing));
  const Tensor flat = le(composer.saved(statistics, 2) * composer.saved(statistics, 3), least);
  return masked_fill(variance, flat, std::numeric_limits<double>::infinity());
}

// The shift by the mean as it was found is a constant that changes neither value nor gradient, but the sums
// that follow keep their digits.
Normal normalised(const Composer& composer, const Tensor& x, const Tensor& statistics, const ChannelNorm& n) {
  const Tensor near_mean = x - composer.saved(statistics, 0);
  if (n.given) {
    const Tensor rstd = rsqrt(composer.saved(statistics, 2) + n.eps.value);
    return {near_mean * rstd, rstd};
  }
  const Tensor centred = near_mean - composer.means({near_mean})[0];
  Tensor variance = composer.means({square(centred)})[0];
  if (n.eps.flat_to_zero && n.eps.value == 0) variance = flat_made_infinite(variance, composer, statistics);
  const Tensor rstd = rsqrt(variance + n.eps.value);
  return {centred * rstd, rstd};
}

}  // namespace

// With x̂ = (x − mean)·rstd and g = dy·w: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) (Ioffe and Szegedy 2015).
Tensors channel_norm_composed(const BackwardContext& c, const Tensor& dy_given, const ChannelNormSaved& saved,
                              const ChannelNorm& n) {
  const Tensor given = saved.x.unpack(n.op->name);
  const Tensor weight = saved.weight.unpack(n.op->name);
  const DType acc = saved.statistics.dtype();
  const Composer composer(n, given, saved.statistics);
  const auto [normal, rstd] = normalised(composer, to(given, acc), saved.statistics, n);
  const Tensor w = weight.defined() ? composer.beside(to(weight, acc)) : Tensor();
  Tensor dy = to(dy_given, acc);
  if (n.activation != NormActivation::None) {
    Tensor z = w.defined() ? normal * w : normal;
    if (saved.bias.defined()) z = z + composer.beside(to(saved.bias.unpack(n.op->name), acc));
    dy = activation_gradient(dy, z, n.activation);
  }
  Tensors grads(5);
  if (c.needs(0)) {
    const Tensor g = w.defined() ? dy * w : dy;
    Tensor dx = g;
    if (!n.given) {
      const Tensors m = composer.means({g, g * normal});
      dx = g - m[0] - normal * m[1];
    }
    grads[0] = to(rstd * dx, given.dtype());
  }
  if (weight.defined() && c.needs(1))
    grads[1] = to(composer.over_all_but_channels(dy * normal), weight.dtype());
  if (saved.bias.defined() && c.needs(2)) grads[2] = to(composer.over_all_but_channels(dy), given.dtype());
  return grads;
}

}  // namespace tessera
