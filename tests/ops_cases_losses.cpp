#include "tests/ops_cases.h"

// Losses of pairs and of classes.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

Reduction some_reduction(Random& random) {
  return pick(random, std::vector<Reduction>{Reduction::None, Reduction::Mean, Reduction::Sum});
}

Dims pair_sizes(Random& random) { return operand_sizes(random, {}); }

using PairLoss = std::function<Tensor(const Tensor& x, const Tensor& y, Reduction reduction)>;

OpFamily pair_family(const char* name, PairLoss loss, InputKinds kinds = {}, bool smooth = true) {
  return {name, [=](Random& random) {
            const Dims sizes = pair_sizes(random);
            const Reduction reduction = some_reduction(random);
            return OpCase{
                fmt::format("{} of {} reduction {}", name, sizes.str(), static_cast<int>(reduction)),
                {{sizes, kinds.first}, {sizes, kinds.second}},
                [=](const Tensors& x) { return Tensors{loss(x[0], x[1], reduction)}; },
                smooth};
          }};
}

// Where a pair's loss changes from a square to a line.
using BentLoss = std::function<Tensor(const Tensor& x, const Tensor& y, Reduction reduction, double bend)>;

OpCase bent_case(Random& random, const char* name, const BentLoss& loss, double bend, InputKind kind) {
  const Dims sizes = pair_sizes(random);
  const Reduction reduction = some_reduction(random);
  return {fmt::format("{} {} of {} reduction {}", name, bend, sizes.str(), static_cast<int>(reduction)),
          {{sizes, kind}, {sizes, kind}},
          [=](const Tensors& x) { return Tensors{loss(x[0], x[1], reduction, bend)}; },
          kind != InputKind::Steps};
}

// 0.1 to 2.5; differences are between -4 and 4.
OpFamily bent_family(const char* name, const BentLoss& loss) {
  return {name, [=](Random& random) {
            return bent_case(random, name, loss, random_constant(random, 0.1, 2.5), InputKind::Coarse);
          }};
}

// The differences of whole numbers meet the bend.
OpFamily tied_bent_family(const char* name, const BentLoss& loss, int least) {
  return {name, [=](Random& random) {
            const double bend = static_cast<double>(random_int(random, least, 3));
            return bent_case(random, name, loss, bend, InputKind::Steps);
          }};
}

// Weights have no gradient: whole numbers, scaled.
InputSpec weight_spec(const Dims& sizes) { return {sizes, InputKind::Index, 7}; }
Tensor as_weight(const Tensor& numbers, const Tensor& like) {
  return affine(to(numbers, like.dtype()), 0.3, 0.2);
}

OpCase entropy_case(Random& random, bool logits) {
  const Dims sizes = pair_sizes(random);
  const Reduction reduction = some_reduction(random);
  const bool weight = chance(random, 50);
  const bool positive = logits && chance(random, 50);
  Dims some = sizes;
  for (std::int64_t& n : some)
    if (chance(random, 30)) n = n == 0 ? 0 : 1;
  OpCase c{fmt::format("binary cross entropy of {}, logits {}, weight {} positive {}", sizes.str(), logits,
                       weight ? some.str() : "none", positive),
           {{sizes}, {sizes}, weight_spec(some)},
           {}};
  c.call = [=](const Tensors& x) {
    const Tensor w = weight ? as_weight(x[2], x[0]) : Tensor();
    const Tensor y = sigmoid(x[1]);
    if (!logits) return Tensors{binary_cross_entropy(sigmoid(x[0]), y, w, reduction)};
    return Tensors{
        binary_cross_entropy_with_logits(x[0], y, w, reduction, positive ? as_weight(x[2], x[0]) : Tensor())};
  };
  return c;
}

OpCase divergence_case(Random& random) {
  const Dims sizes = pair_sizes(random);
  const Reduction reduction = pick(
      random, std::vector<Reduction>{Reduction::None, Reduction::Mean, Reduction::Sum, Reduction::BatchMean});
  const bool log_target = chance(random, 50);
  return {fmt::format("kl_div of {}, log_target {}", sizes.str(), log_target),
          {{sizes}, {sizes, log_target ? InputKind::Any : InputKind::Positive}},
          [=](const Tensors& x) { return Tensors{kl_div(x[0], x[1], reduction, log_target)}; }};
}

// [N, C] or [N, C, positions…], or [C]; some targets are those that do not count.
OpCase class_case(Random& random, bool logits) {
  const std::int64_t classes = random_int(random, 1, chance(random, 20) ? 20 : 5);
  Dims sizes{classes};
  if (chance(random, 85)) sizes.insert(0, random_int(random, chance(random, 10) ? 0 : 1, 4));
  const Dims more = sizes.size() == 2 ? operand_sizes(random, {0, 2, 4, Dims::kMax - 2}) : Dims();
  for (const std::int64_t n : more) sizes.push_back(std::max<std::int64_t>(n, 1));
  Dims positions = sizes;
  positions.erase(sizes.size() == 1 ? 0 : 1);
  ClassLossOptions options;
  options.reduction = some_reduction(random);
  options.ignore_index = random_int(random, -1, classes - 1);
  if (logits && chance(random, 40)) options.label_smoothing = random_constant(random, 0.05, 0.9);
  const bool weight = chance(random, 40);
  OpCase c{
      fmt::format("{} of {}, reduction {}, ignores {}, smoothing {}, weight {}",
                  logits ? "cross_entropy" : "nll_loss", sizes.str(), static_cast<int>(options.reduction),
                  options.ignore_index, options.label_smoothing, weight),
      {{sizes}, {positions, InputKind::Index, classes}, weight_spec({classes})},
      {}};
  // The mean over no target is NaN.
  c.smooth = options.reduction != Reduction::Mean || options.ignore_index < 0;
  c.call = [=](const Tensors& x) {
    const Tensor w = weight ? as_weight(x[2], x[0]) : Tensor();
    return Tensors{logits ? cross_entropy(x[0], x[1], w, options) : nll_loss(x[0], x[1], w, options)};
  };
  return c;
}

OpCase probability_case(Random& random) {
  const std::int64_t classes = random_int(random, 1, 5);
  const Dims sizes = chance(random, 20) ? Dims{classes} : Dims{random_int(random, 1, 4), classes, 3};
  ClassLossOptions options;
  options.reduction = some_reduction(random);
  if (chance(random, 50)) options.label_smoothing = random_constant(random, 0.05, 0.9);
  return {"cross_entropy with probabilities " + sizes.str(), {{sizes}, {sizes}}, [=](const Tensors& x) {
            return Tensors{cross_entropy(x[0], softmax(x[1], sizes.size() == 1 ? 0 : 1), {}, options)};
          }};
}

}  // namespace

void add_losses(std::vector<OpFamily>& list) {
  list.push_back(pair_family("l1_loss", &l1_loss, kApart));
  list.push_back(pair_family("l1_loss of ties", &l1_loss, {InputKind::Steps, InputKind::Steps}, false));
  list.push_back(bent_family("smooth_l1_loss", &smooth_l1_loss));
  list.push_back(tied_bent_family("smooth_l1_loss of ties", &smooth_l1_loss, 0));
  list.push_back(bent_family("huber_loss", &huber_loss));
  list.push_back(tied_bent_family("huber_loss of ties", &huber_loss, 1));
  list.push_back({"binary_cross_entropy", [](Random& random) { return entropy_case(random, false); }});
  list.push_back(
      {"binary_cross_entropy_with_logits", [](Random& random) { return entropy_case(random, true); }});
  list.push_back({"kl_div", &divergence_case});
  list.push_back({"cross_entropy", [](Random& random) { return class_case(random, true); }});
  list.push_back({"nll_loss", [](Random& random) { return class_case(random, false); }});
  list.push_back({"cross_entropy with probabilities", &probability_case});
}

}  // namespace tessera::ops_cases
