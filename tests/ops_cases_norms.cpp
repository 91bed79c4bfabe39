#include "tests/ops_cases.h"

// Norms over channels and root-mean-square norm; losses are in ops_cases_losses.cpp.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

// [N, C, two more dims at most as a rule], C a multiple of `groups`, so that no statistic is of a single
// value.
Dims channel_sizes(Random& random, std::int64_t groups) {
  Dims sizes{random_int(random, chance(random, 10) ? 0 : 1, 3), groups * random_int(random, 1, 3)};
  for (const std::int64_t n : operand_sizes(random, {0, 2, 4, Dims::kMax - 3}))  // a caller adds one
    sizes.push_back(std::max<std::int64_t>(n, 1));
  return sizes;
}

// x, and weight and bias of `sizes` more often than not.
OpCase affine_case(Random& random, const std::string& text, const Dims& x, const Dims& sizes,
                   std::function<Tensors(const Tensor&, const Tensor&, const Tensor&)> call) {
  const bool weight = chance(random, 75);
  const bool bias = chance(random, 75);
  OpCase c{
      fmt::format("{} of {}{}{}", text, x.str(), weight ? " weight" : "", bias ? " bias" : ""), {{x}}, {}};
  if (weight) c.inputs.push_back({sizes});
  if (bias) c.inputs.push_back({sizes});
  c.call = [=](const Tensors& in) {
    return call(in[0], weight ? in[1] : Tensor(), bias ? in[weight ? 2 : 1] : Tensor());
  };
  return c;
}

// Not small: rows of a few values that are almost the same are steep otherwise.
double random_eps(Random& random) { return random_constant(random, 0.05, 0.5); }

// More often than not none. Finite differences do not see kinks.
NormActivation random_activation(Random& random) {
  return chance(random, 55) ? NormActivation::None : static_cast<NormActivation>(random_int(random, 1, 4));
}
OpCase with_activation(OpCase c, NormActivation activation) {
  c.text += fmt::format(" activation {}", static_cast<int>(activation));
  c.smooth = activation != NormActivation::Relu;
  return c;
}

OpCase group_case(Random& random) {
  const std::int64_t groups = random_int(random, 1, 3);
  Dims sizes = channel_sizes(random, groups);
  if (sizes[1] == groups) sizes.push_back(2);
  const double eps = random_eps(random);
  const NormActivation activation = random_activation(random);
  return with_activation(
      affine_case(random, fmt::format("group_norm {} eps {}", groups, eps), sizes, {sizes[1]},
                  [=](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return Tensors{group_norm(x, groups, w, b, {.eps = eps, .activation = activation})};
                  }),
      activation);
}

// References are worked out on the CPU: the statistics are wherever the input is.
RunningStatistics running_of(std::int64_t channels, Device device) {
  const auto of = [&](double value) { return Tensor(Array::full({channels}, value, DType::F64, device)); };
  return {of(0.3), of(1.7)};
}

OpCase batch_case(Random& random) {
  Dims sizes = channel_sizes(random, random_int(random, 1, 3));
  if (numel_of(sizes) == sizes[1]) sizes.push_back(2);
  const bool training = chance(random, 70);
  const BatchNormOptions options{
      .training = training, .eps = random_eps(random), .activation = random_activation(random)};
  return with_activation(
      affine_case(random, fmt::format("batch_norm training {} eps {}", training, options.eps), sizes,
                  {sizes[1]},
                  [=](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return Tensors{batch_norm(x, running_of(sizes[1], x.device()), w, b, options)};
                  }),
      options.activation);
}

OpCase instance_case(Random& random) {
  Dims sizes = channel_sizes(random, random_int(random, 1, 3));
  if (numel_of(sizes) == sizes[0] * sizes[1]) sizes.push_back(3);
  const bool own = chance(random, 70);
  const InstanceNormOptions options{
      .use_input_stats = own, .eps = random_eps(random), .activation = random_activation(random)};
  return with_activation(
      affine_case(random, fmt::format("instance_norm own statistics {} eps {}", own, options.eps), sizes,
                  {sizes[1]},
                  [=](const Tensor& x, const Tensor& w, const Tensor& b) {
                    return Tensors{instance_norm(x, running_of(sizes[1], x.device()), w, b, options)};
                  }),
      options.activation);
}

// Finite differences do not apply: there is no gradient to the input.
OpCase running_case(Random& random) {
  Dims sizes = channel_sizes(random, random_int(random, 1, 3));
  sizes.push_back(2);
  const double momentum = random_constant(random, 0, 1);
  OpCase c{"running statistics of " + sizes.str(), {{sizes}}, {}};
  c.smooth = false;
  c.call = [=](const Tensors& x) {
    const RunningStatistics batch = running_of(sizes[1], x[0].device());
    const RunningStatistics instance = running_of(sizes[1], x[0].device());
    batch_norm(x[0], batch, {}, {}, {.training = true, .momentum = momentum});
    instance_norm(x[0], instance, {}, {}, {.momentum = momentum});
    return Tensors{batch.mean, batch.var, instance.mean, instance.var};
  };
  return c;
}

OpCase rms_case(Random& random) {
  Dims sizes = operand_sizes(random, {.least = 1});
  Dims shape;
  const int from = static_cast<int>(random_int(random, 0, sizes.size() - 1));
  for (int d = from; d < sizes.size(); ++d) shape.push_back(sizes[d]);
  const bool weight = chance(random, 70);
  const double eps = random_eps(random);
  OpCase c{fmt::format("rms_norm {} eps {}", shape.str(), eps), {{sizes}}, {}};
  if (weight) c.inputs.push_back({shape});
  c.call = [=](const Tensors& x) { return Tensors{rms_norm(x[0], shape, weight ? x[1] : Tensor(), eps)}; };
  return c;
}

}  // namespace

void add_norms(std::vector<OpFamily>& list) {
  list.push_back({"group_norm", &group_case});
  list.push_back({"batch_norm", &batch_case});
  list.push_back({"instance_norm", &instance_case});
  list.push_back({"running statistics", &running_case});
  list.push_back({"rms_norm", &rms_case});
}

}  // namespace tessera::ops_cases
