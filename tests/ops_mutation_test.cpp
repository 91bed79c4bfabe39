// Adjoints broken on purpose, through the seams that backends and users have anyway: the comparison that the
// other tests rest on must turn red.
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "ops/indexing/kernels.h"
#include "ops/kernels.h"
#include "ops/loss/loss_kernels.h"
#include "ops/norm/norm_kernels.h"
#include "ops/op.h"
#include "runtime/copy.h"
#include "tests/ops_cases.h"

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

// Of several terms for one row only the last counts.
void put_last(const cpu::IndexArgs& args) {
  for (std::int64_t i = 0; i < args.numbers.numel(); ++i) {
    const std::int64_t row = args.numbers.data<std::int64_t>()[i];
    if (row >= 0) args.to.slice(1, row, 1).copy_(args.from.slice(1, i, 1));
  }
}

void weight_gradient_off(const cpu::ConvBackwardWeightArgs& args) {
  cpu::conv_backward_weight(args);
  const std::vector<double> values = args.dw.to_vector();
  std::vector<double> off;
  for (const double v : values) off.push_back(v * (1 + 1e-6));
  args.dw.copy_(Array::from(off, args.dw.sizes(), args.dw.dtype()));
}

void class_gradient_off(const cpu::ClassGradientArgs& args) {
  cpu::ClassGradientArgs off = args;
  off.total = Array::full({}, args.total.at(0) * (1 + 1e-6), DType::F64);
  cpu::class_loss_gradient(off);
}

void gradient_without_its_mean(const cpu::ChannelGradientArgs& args) {
  cpu::ChannelGradientArgs off = args;
  if (off.sums.defined()) {
    off.sums = off.sums.clone();
    off.sums.slice(0, 0, 1).zero_();
  }
  cpu::channel_norm_gradient(off);
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

std::vector<Mutation> mutations() {
  static const auto add_into_right = add_into_kernel;
  static const auto weight_right = kernels::conv_backward_weight;
  static const auto classes_right = kernels::class_loss_gradient;
  static const auto norm_right = kernels::channel_norm_gradient;
  return {
      {"two gradients of one tensor: one is lost",
       [] { engine_ops().add = &first_term_only; },
       [] { engine_ops() = default_engine_ops(); },
       {"mse_loss", "linear pieces", "var"}},
      {"halo gradients overwrite instead of adding",
       [] { add_into_kernel.set(Device::Cpu, &overwrite); },
       [] { add_into_kernel = add_into_right; },
       {"conv", "pad", "conv_transpose"}},
      {"gradients of a row that was taken twice overwrite each other",
       [] { kernels::put_rows.set(Device::Cpu, &put_last); },
       [] { kernels::put_rows.set(Device::Cpu, &cpu::put_rows); },
       {"embedding", "index_select"}},
      {"weight gradients are off by a millionth",
       [] { kernels::conv_backward_weight.set(Device::Cpu, &weight_gradient_off); },
       [] { kernels::conv_backward_weight = weight_right; },
       {"conv"}},
      {"gradients of replicated weights are not summed over ranks",
       [] {
         register_op_handler("outer_product", forgets_to_reduce([](std::span<const Tensor> in) {
                               return outer_product(in[0], in[1]);
                             }));
       },
       [] { remove_op_handler("outer_product"); },
       {"linear"}},
      {"the gradient of a norm lacks its mean",
       [] { kernels::channel_norm_gradient.set(Device::Cpu, &gradient_without_its_mean); },
       [] { kernels::channel_norm_gradient = norm_right; },
       {"group_norm", "batch_norm", "instance_norm"}},
      {"gradients by class are off by a millionth",
       [] { kernels::class_loss_gradient.set(Device::Cpu, &class_gradient_off); },
       [] { kernels::class_loss_gradient = classes_right; },
       {"cross_entropy"}},
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
       {"mul", "div"}},
  };
}

const OpFamily& family_named(const std::string& name) {
  for (const OpFamily& f : families())
    if (name == f.name) return f;
  throw std::runtime_error("no family " + name);
}

// Trials of a family until one is red; every rank sees the same answer.
bool turns_red(Random& random, const OpFamily& family, const Mutation* mutation) {
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < 40; ++trial) {
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
