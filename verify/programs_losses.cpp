#include "verify/program_table.h"

namespace tessera::verify {
namespace {

Reduction reduction_of(const Call& c) {
  const std::map<std::string, Reduction> kinds{{"none", Reduction::None},
                                               {"mean", Reduction::Mean},
                                               {"sum", Reduction::Sum},
                                               {"batchmean", Reduction::BatchMean}};
  const auto kind = kinds.find(c.get<std::string>("reduction", "mean"));
  if (kind == kinds.end()) c.lacks("reduction \"" + c.get<std::string>("reduction") + "\"");
  return kind->second;
}

ClassLossOptions class_options(const Call& c) {
  return {reduction_of(c), c.get<std::int64_t>("ignore_index", -100), c.get("label_smoothing", 0.0)};
}

}  // namespace

// Weights are inputs after prediction and target; of binary_cross_entropy_with_logits that of positive
// targets comes last.
void add_losses(OpTable& t) {
  t["mse_loss"] = [](const Call& c) -> Tensors { return {mse_loss(c.in(0), c.in(1), reduction_of(c))}; };
  t["l1_loss"] = [](const Call& c) -> Tensors { return {l1_loss(c.in(0), c.in(1), reduction_of(c))}; };
  t["smooth_l1_loss"] = [](const Call& c) -> Tensors {
    return {smooth_l1_loss(c.in(0), c.in(1), reduction_of(c), c.get("beta", 1.0))};
  };
  t["huber_loss"] = [](const Call& c) -> Tensors {
    return {huber_loss(c.in(0), c.in(1), reduction_of(c), c.get("delta", 1.0))};
  };
  t["binary_cross_entropy"] = [](const Call& c) -> Tensors {
    return {binary_cross_entropy(c.in(0), c.in(1), c.maybe(2), reduction_of(c))};
  };
  t["binary_cross_entropy_with_logits"] = [](const Call& c) -> Tensors {
    return {binary_cross_entropy_with_logits(c.in(0), c.in(1), c.maybe(2), reduction_of(c), c.maybe(3))};
  };
  t["kl_div"] = [](const Call& c) -> Tensors {
    return {kl_div(c.in(0), c.in(1), reduction_of(c), c.get("log_target", false))};
  };
  t["cross_entropy"] = [](const Call& c) -> Tensors {
    return {cross_entropy(c.in(0), c.in(1), c.maybe(2), class_options(c))};
  };
  t["nll_loss"] = [](const Call& c) -> Tensors {
    return {nll_loss(c.in(0), c.in(1), c.maybe(2), class_options(c))};
  };
}

}  // namespace tessera::verify
