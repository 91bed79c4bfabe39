#include "verify/program_table.h"

namespace tessera::verify {
namespace {

NormActivation activation_of(const Call& c) {
  return c.one_of<NormActivation>("activation", "none",
                                  {{"none", NormActivation::None},
                                   {"relu", NormActivation::Relu},
                                   {"silu", NormActivation::Silu},
                                   {"gelu", NormActivation::Gelu},
                                   {"gelu_tanh", NormActivation::GeluTanh}});
}

}  // namespace

void add_norms(OpTable& t) {
  t["add_layer_norm"] = [](const Call& c) -> Tensors {
    const auto [sum, norm] = add_layer_norm(c.in(0), c.in(1), c.dims("normalized_shape"),
                                            {c.maybe(2), c.maybe(3), c.get("eps", 1e-5)});
    return {sum, norm};
  };
  t["layer_norm"] = [](const Call& c) -> Tensors {
    return {layer_norm(c.in(0), c.dims("normalized_shape"), c.maybe(1), c.maybe(2), c.get("eps", 1e-5))};
  };
  t["rms_norm"] = [](const Call& c) -> Tensors {
    const std::optional<double> eps = c.has("eps") ? std::optional(c.get<double>("eps")) : std::nullopt;
    return {rms_norm(c.in(0), c.dims("normalized_shape"), c.maybe(1), eps)};
  };
  t["group_norm"] = [](const Call& c) -> Tensors {
    return {group_norm(c.in(0), c.integer("num_groups"), c.maybe(1), c.maybe(2),
                       {.eps = c.get("eps", 1e-5), .activation = activation_of(c)})};
  };
  // Inputs after x, weight and bias are running mean and variance; where they move they are outputs too.
  t["batch_norm"] = [](const Call& c) -> Tensors {
    const RunningStatistics running{c.maybe(3), c.maybe(4)};
    const bool training = c.get("training", true);
    const Tensor y = batch_norm(c.in(0), running, c.maybe(1), c.maybe(2),
                                {.training = training,
                                 .momentum = c.get("momentum", 0.1),
                                 .eps = c.get("eps", 1e-5),
                                 .activation = activation_of(c)});
    return training && running.mean.defined() ? Tensors{y, running.mean, running.var} : Tensors{y};
  };
  t["instance_norm"] = [](const Call& c) -> Tensors {
    const RunningStatistics running{c.maybe(3), c.maybe(4)};
    const bool own = c.get("use_input_stats", true);
    const Tensor y = instance_norm(c.in(0), running, c.maybe(1), c.maybe(2),
                                   {.use_input_stats = own,
                                    .momentum = c.get("momentum", 0.1),
                                    .eps = c.get("eps", 1e-5),
                                    .activation = activation_of(c)});
    return own && running.mean.defined() ? Tensors{y, running.mean, running.var} : Tensors{y};
  };
}

}  // namespace tessera::verify
