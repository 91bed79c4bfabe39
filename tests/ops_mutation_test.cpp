// Adjoints broken on purpose, through the seams that backends and users have anyway: the comparison that the
// other tests rest on must turn red.
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "ops/elementwise/ternary_kernel.h"
#include "ops/indexing/kernels.h"
#include "ops/kernels.h"
#include "ops/loss/loss_kernels.h"
#include "ops/norm/norm_kernels.h"
#include "ops/op.h"
#include "ops/reduce/merge_kernel.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/copy.h"
#include "tests/ops_trials.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::ops_cases;

namespace {

struct Mutation {
  const char* what;
  std::function<void()> apply;
  std::function<void()> undo;
  std::vector<const char*> families;  // that must notice
};

Tensor first_term_only(const Tensor& a, const Tensor&) { return a; }

// Overwrites where it should add: a halo's gradient replaces the owner's.
void overwrite(const Array& to, const Array& from) { copy_kernel(to.device(), to, from); }

// Of several terms for one row (or element) only the last counts.
void put_last(const cpu::IndexArgs& args) {
  for (std::int64_t i = 0; i < args.numbers.numel(); ++i) {
    const std::int64_t row = args.numbers.data<std::int64_t>()[i];
    if (row >= 0) args.to.slice(1, row, 1).copy_(args.from.slice(1, i, 1));
  }
}
void put_last_element(const cpu::IndexArgs& args) {
  const Dims& sizes = args.numbers.sizes();
  for (std::int64_t i = 0; i < args.numbers.numel(); ++i) {
    const Dims from{i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]};
    const auto row = static_cast<std::int64_t>(args.numbers.at(i));
    if (row >= 0) args.to.box({from[0], row, from[2]}, {1, 1, 1}).copy_(args.from.box(from, {1, 1, 1}));
  }
}

void add_a_millionth(const Array& a) {
  if (!a.defined()) return;
  std::vector<double> values = a.to_vector();
  for (double& v : values) v *= 1 + 1e-6;
  a.copy_(Array::from(values, a.sizes(), a.dtype()));
}
template <class Args, void (*kKernel)(const Args&), Array Args::*kOut>
void off(const Args& args) {
  kKernel(args);
  add_a_millionth(args.*kOut);
}
void product_off(const cpu::MatmulArgs& args) {  // in backward
  cpu::matmul(args);
  if (!grad_enabled()) add_a_millionth(args.c);
}
void pair_slope_off(const cpu::PairLossArgs& args) {
  cpu::pair_loss(args);
  if (args.part != cpu::PairPart::Value) add_a_millionth(args.out);
}

void class_gradient_off(const cpu::ClassGradientArgs& args) {
  cpu::ClassGradientArgs wrong = args;
  wrong.total = Array::full({}, args.total.at(0) * (1 + 1e-6), DType::F64);
  cpu::class_loss_gradient(wrong);
}

void gradient_without_its_mean(const cpu::ChannelGradientArgs& args) {
  cpu::ChannelGradientArgs wrong = args;
  if (wrong.sums.defined()) {
    wrong.sums = wrong.sums.clone();
    wrong.sums.slice(0, 0, 1).zero_();
  }
  cpu::channel_norm_gradient(wrong);
}

// Takes a sum over ranks that is owed for one that was made.
template <class F>
OpHandler forgets_to_reduce(F call_again) {
  return [call_again, inside = std::make_shared<bool>(false)](const OpDef&, std::span<const Tensor> in,
                                                              Tensors& out) {
    if (*inside || grad_enabled()) return false;  // forward is right
    *inside = true;
    const Tensor made = call_again(in);
    *inside = false;
    out = {made.is_sharded() ? Tensor(made.local(), without_partial(*made.spec())) : made};
    return true;
  };
}

template <class Args>
Mutation wrong_kernel(const char* what, Kernel<void(const Args&)>& kernel, void (*wrong)(const Args&),
                      const std::vector<const char*>& families) {
  return {what, [&kernel, wrong] { kernel.set(Device::Cpu, wrong); },
          [&kernel, right = kernel] { kernel = right; }, families};
}

std::vector<Mutation> wrong_kernels() {
  using namespace cpu;
  return {
      wrong_kernel("gradients of a row that was taken twice overwrite each other", kernels::put_rows,
                   &put_last, {"embedding", "index_select", "knn", "radius_search", "radius_lists"}),
      wrong_kernel("gradients of an element that was taken twice overwrite each other", kernels::put_elements,
                   &put_last_element, {"gather", "take_along_dim", "scatter_add"}),
      wrong_kernel("gradients by a convolution's weight are off by a millionth",
                   kernels::conv_backward_weight,
                   &off<ConvBackwardWeightArgs, &conv_backward_weight, &ConvBackwardWeightArgs::dw>,
                   {"conv", "conv_transpose1d", "conv_transpose2d"}),
      wrong_kernel("gradients by a convolution's input are off by a millionth", kernels::conv_backward_data,
                   &off<ConvBackwardDataArgs, &conv_backward_data, &ConvBackwardDataArgs::dx>, {"conv"}),
      wrong_kernel("gradients by keys are off by a millionth", kernels::attention_backward,
                   &off<AttentionBackwardArgs, &attention_backward, &AttentionBackwardArgs::dk>,
                   {"attention"}),
      wrong_kernel("gradients of softmax are off by a millionth", kernels::softmax_backward,
                   &off<SoftmaxBackwardArgs, &softmax_backward, &SoftmaxBackwardArgs::dx>,
                   {"softmax", "log_softmax"}),
      wrong_kernel("gradients of layer_norm are off by a millionth", kernels::layer_norm_backward,
                   &off<LayerNormBackwardArgs, &layer_norm_backward, &LayerNormBackwardArgs::dx>,
                   {"layer_norm"}),
      wrong_kernel("gradients of layer_norm over cut rows are off by a millionth",
                   kernels::layer_norm_gradient,
                   &off<NormGradientArgs, &layer_norm_gradient, &NormGradientArgs::dx>, {"layer_norm"}),
      wrong_kernel("gradients by rms_norm's weight are off by a millionth", kernels::rms_norm_backward,
                   &off<RmsNormBackwardArgs, &rms_norm_backward, &RmsNormBackwardArgs::dweight>,
                   {"rms_norm"}),
      wrong_kernel("deviations of parts are merged with an error of a millionth", kernels::merge_moments,
                   &off<MergeMomentsArgs, &merge_moments, &MergeMomentsArgs::m2>,
                   {"batch_norm", "group_norm", "instance_norm"}),
      wrong_kernel("the gradient of a norm lacks its mean", kernels::channel_norm_gradient,
                   &gradient_without_its_mean, {"group_norm", "batch_norm", "instance_norm"}),
      wrong_kernel("products in backward are off by a millionth", kernels::matmul, &product_off,
                   {"matmul", "einsum", "linear"}),
      wrong_kernel("slopes of losses are off by a millionth", kernels::pair_loss, &pair_slope_off,
                   {"l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div"}),
      wrong_kernel("functions of three numbers are off by a millionth", kernels::ternary,
                   &off<TernaryArgs, &ternary, &TernaryArgs::out>, {"std", "logsumexp", "maximum"}),
      wrong_kernel("gradients of products beside zeros are off by a millionth", kernels::prod_gradient,
                   &off<ProdGradientArgs, &prod_gradient, &ProdGradientArgs::dx>, {"prod"}),
      wrong_kernel("gradients by class are off by a millionth", kernels::class_loss_gradient,
                   &class_gradient_off, {"cross_entropy", "nll_loss"}),
  };
}

std::vector<Mutation> mutations() {
  static const auto add_into_right = add_into_kernel;
  std::vector<Mutation> list = wrong_kernels();
  list.insert(list.end(),
              {{"two gradients of one tensor: one is lost",
                [] { engine_ops().add = &first_term_only; },
                [] { engine_ops() = default_engine_ops(); },
                {"mse_loss", "linear pieces", "var"}},
               {"halo gradients overwrite instead of adding",
                [] { add_into_kernel.set(Device::Cpu, &overwrite); },
                [] { add_into_kernel = add_into_right; },
                {"conv", "pad", "conv_transpose1d", "conv_transpose2d"}},
               {"gradients of replicated weights are not summed over ranks",
                [] {
                  register_op_handler("outer_product", forgets_to_reduce([](std::span<const Tensor> in) {
                                        return outer_product(in[0], in[1]);
                                      }));
                },
                [] { remove_op_handler("outer_product"); },
                {"linear"}},
               {"gradients of products are half",
                [] {
                  register_op_handler("mul", [inside = std::make_shared<bool>(false)](
                                                 const OpDef&, std::span<const Tensor> in, Tensors& out) {
                    if (*inside || grad_enabled()) return false;
                    *inside = true;
                    out = {affine(mul(in[0], in[1]), 0.5, 0.0)};
                    *inside = false;
                    return true;
                  });
                },
                [] { remove_op_handler("mul"); },
                {"mul", "div", "norm"}}});
  return list;
}

const OpFamily& family_named(const std::string& name) {
  for (const OpFamily& f : families())
    if (name == f.name) return f;
  throw std::runtime_error("no family " + name);
}

// Trials of a family until one is red; every rank sees the same answer.
bool turns_red(Random& random, const OpFamily& family, const Mutation* mutation) {
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < 400; ++trial) {
    const OpCase c = family.draw(random);
    const Reference reference = run_plain(random, c, false);
    if (mutation != nullptr) mutation->apply();
    const Parity p = run_on_mesh(random, pick(random, meshes), c, reference);
    if (mutation != nullptr) mutation->undo();
    if (!true_everywhere(p.worst() <= 1e-11)) return true;
    if (mutation == nullptr && trial > 3) return false;
  }
  return false;
}

}  // namespace

TEST_CASE("broken gradients turn the comparison red", "[ops]") {
  auto random = test_random(80);
  for (const Mutation& m : mutations())
    for (const char* name : m.families) {
      INFO(m.what << ": " << name);
      CHECK(turns_red(random, family_named(name), &m));
      CHECK_FALSE(turns_red(random, family_named(name), nullptr));
    }
}

TEST_CASE("a trial that fails becomes a small one that fails too, and is told so that it can be run again",
          "[ops]") {
  static const auto right = add_into_kernel;
  const OpFamily& family = family_named("conv");
  const std::vector<DeviceMesh> meshes = all_meshes();
  const auto broken = [&](const auto& f) {
    add_into_kernel.set(Device::Cpu, &overwrite);
    auto result = f();
    add_into_kernel = right;
    return result;
  };
  std::uint64_t number = 0;
  const Outcome failed = broken([&] {
    Outcome outcome;
    // One that can become smaller.
    for (; (outcome.failure.empty() || outcome.size < 60) && number < 400; ++number)
      outcome = run_trial({family, meshes, number});
    return outcome;
  });
  REQUIRE_FALSE(failed.failure.empty());
  const Trial trial{family, meshes, number - 1};
  const Smallest s = broken([&] { return smallest(trial, failed); });
  INFO("first: " << failed.failure << "\nsmallest: " << s.outcome.failure);
  CHECK(s.outcome.size < failed.size);
  // One tensor must be cut for the fault to show; others, like the weight, need not be.
  CHECK(std::count(s.easing.held.begin(), s.easing.held.end(), Ease::Whole) > 0);
  CHECK(std::count(s.easing.held.begin(), s.easing.held.end(), Ease::Whole) <
        static_cast<std::ptrdiff_t>(s.outcome.tensors));
  CHECK(contains(s.outcome.failure,
                 fmt::format("TESSERA_TRIAL={} TESSERA_EASE='{}'", s.number, s.easing.str())));
  // What the line says runs the same trial: wrong with the fault, right without.
  const Easing told = Easing::parse(s.easing.str());
  CHECK(broken([&] { return run_trial({family, meshes, s.number}, told); }).failure == s.outcome.failure);
  CHECK(run_trial({family, meshes, s.number}, told).failure.empty());
  // A trial that is looked at by itself keeps its call, and is held more simply.
  const Smallest alone = broken([&] { return smallest(trial, failed, 0); });
  CHECK(alone.number == trial.number);
  CHECK(alone.outcome.size == failed.size);
  CHECK_FALSE(alone.outcome.failure.empty());
}
