// Losses as modules: forward(prediction, target). What they compute is in ops/loss/loss.h.
#pragma once
#include "nn/module.h"
#include "ops/loss/loss.h"

namespace tessera::nn {

class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& x, const Tensor& target) = 0;
  Tensor operator()(const Tensor& x, const Tensor& target) { return forward(x, target); }
};

// Those that know nothing but how they are reduced.
template <Tensor (*F)(const Tensor&, const Tensor&, Reduction)>
class PairLoss : public Loss {
 public:
  explicit PairLoss(Reduction reduction = Reduction::Mean) : reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override { return F(x, target, reduction_); }

 private:
  Reduction reduction_;
};
using MSELoss = PairLoss<&tessera::mse_loss>;
using L1Loss = PairLoss<&tessera::l1_loss>;

// And those with one more number.
template <Tensor (*F)(const Tensor&, const Tensor&, Reduction, double)>
class ScaledPairLoss : public Loss {
 public:
  explicit ScaledPairLoss(Reduction reduction = Reduction::Mean, double scale = 1.0)
      : reduction_(reduction), scale_(scale) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override { return F(x, target, reduction_, scale_); }

 private:
  Reduction reduction_;
  double scale_;
};
using SmoothL1Loss = ScaledPairLoss<&tessera::smooth_l1_loss>;  // (reduction, beta)
using HuberLoss = ScaledPairLoss<&tessera::huber_loss>;         // (reduction, delta)

class KLDivLoss : public Loss {
 public:
  explicit KLDivLoss(Reduction reduction = Reduction::Mean, bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return kl_div(x, target, reduction_, log_target_);
  }

 private:
  Reduction reduction_;
  bool log_target_;
};

// Weights are buffers, as in PyTorch, where they are given.
class BCELoss : public Loss {
 public:
  explicit BCELoss(Reduction reduction = Reduction::Mean, const Tensor& loss_weight = Tensor())
      : weight(register_buffer("weight", loss_weight)), reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return binary_cross_entropy(x, target, weight, reduction_);
  }

  Tensor weight;

 private:
  Reduction reduction_;
};

class BCEWithLogitsLoss : public Loss {
 public:
  explicit BCEWithLogitsLoss(Reduction reduction = Reduction::Mean, const Tensor& loss_weight = Tensor(),
                             const Tensor& positive_weight = Tensor())
      : weight(register_buffer("weight", loss_weight)),
        pos_weight(register_buffer("pos_weight", positive_weight)),
        reduction_(reduction) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return binary_cross_entropy_with_logits(x, target, weight, reduction_, pos_weight);
  }

  Tensor weight;
  Tensor pos_weight;

 private:
  Reduction reduction_;
};

template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, const ClassLossOptions&)>
class ClassLoss : public Loss {
 public:
  explicit ClassLoss(const ClassLossOptions& options = {}, const Tensor& class_weight = Tensor())
      : weight(register_buffer("weight", class_weight)), options_(options) {}
  using Loss::forward;
  Tensor forward(const Tensor& x, const Tensor& target) override { return F(x, target, weight, options_); }

  Tensor weight;

 private:
  ClassLossOptions options_;
};
using CrossEntropyLoss = ClassLoss<&tessera::cross_entropy>;
using NLLLoss = ClassLoss<&tessera::nll_loss>;

}  // namespace tessera::nn
