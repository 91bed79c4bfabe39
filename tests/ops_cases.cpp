#include "tests/ops_cases.h"

#include <cmath>
#include <cstdlib>

#include "autograd/adjoints.h"
#include "autograd/node.h"

namespace tessera::ops_cases {

using namespace mesh_cases;

const std::vector<OpFamily>& families() {
  static const std::vector<OpFamily> list = [] {
    std::vector<OpFamily> all;
    add_pointwise(all);
    add_reductions(all);
    add_products(all);
    add_shapes(all);
    add_windows(all);
    add_norms(all);
    add_losses(all);
    add_indexing(all);
    add_points(all);
    if (const char* only = std::getenv("TESSERA_FAMILY"))  // one family, for whoever works on it
      std::erase_if(all, [only](const OpFamily& f) { return !contains(f.name, only); });
    return all;
  }();
  return list;
}

Dims operand_sizes(Random& random, const DimRange& range) {
  if (chance(random, 92)) {
    const auto dims = static_cast<int>(random_int(random, range.least, range.most));
    return mesh_cases::random_sizes(random, dims, range.longest);
  }
  return mesh_cases::random_sizes(random, static_cast<int>(random_int(random, range.most + 1, range.all)), 2);
}

double random_constant(Random& random, double from, double to) {
  return from + 0.01 * static_cast<double>(random_int(random, 0, std::lround((to - from) * 100) - 1)) +
         0.0025;
}

std::vector<double> draw_values(Random& random, const InputSpec& input) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(input.sizes)));
  for (double& v : values) {
    const double u = static_cast<double>(random_int(random, 0, 1'000'000)) / 1'000'000.0;
    switch (input.kind) {
      case InputKind::Any:
        v = 4 * u - 2;
        break;
      case InputKind::Positive:
        v = 0.5 + 2 * u;
        break;
      case InputKind::Coarse:
        v = 0.01 * std::min(std::floor(400 * u), 399.0) - 1.995;
        break;
      case InputKind::Between:
        v = 0.01 * std::min(std::floor(399 * u), 398.0) - 1.99;
        break;
      case InputKind::Steps:
        v = std::floor(4 * u) - 2;
        break;
      case InputKind::Bool:
        v = u < 0.7 ? 1 : 0;
        break;
      case InputKind::Index:
        v = static_cast<double>(random_int(random, 0, input.bound - 1));
        break;
      case InputKind::Distinct:
        v = 0.1 * static_cast<double>(&v - values.data()) - 1 + 0.05 * u;
    }
  }
  for (double& v : values) v = static_cast<double>(static_cast<float>(v));
  if (input.kind == InputKind::Distinct) std::shuffle(values.begin(), values.end(), random);
  return values;
}

DType dtype_of(const InputSpec& input, DType floating) {
  if (input.kind == InputKind::Index) return DType::I64;
  return input.kind == InputKind::Bool ? DType::Bool : floating;
}

Tensor plain_input(const InputSpec& input, const std::vector<double>& values, DType floating) {
  Tensor t(Array::from(values, input.sizes, dtype_of(input, floating)));
  t.set_requires_grad(is_floating(t.dtype()));
  return t;
}

Array in_random_memory(Random& random, const Array& values) {
  const int n = values.dim();
  std::vector<int> order;  // outermost first
  for (int d = 0; d < n; ++d) order.push_back(d);
  const bool channels_last = chance(random, 50);
  const bool shuffled = chance(random, 20);
  const std::int64_t gap = chance(random, 20) ? random_int(random, 1, 2) : 0;
  const std::int64_t before = gap == 0 ? 0 : random_int(random, 0, 3);
  if (channels_last && n > 2) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  if (shuffled) std::shuffle(order.begin(), order.end(), random);
  Dims strides = Dims::filled(n, 1);
  std::int64_t next = 1;
  for (int i = n - 1; i >= 0; --i) {
    const int d = order[static_cast<std::size_t>(i)];
    strides[d] = next;
    next = next * std::max<std::int64_t>(values.size(d), 1) + gap;
  }
  const Array out = Array::zeros({next + before}, values.dtype(), test_device())
                        .as_strided(values.sizes(), strides, before);
  out.copy_(values);
  return out;
}

namespace {

// The tensor of these values under `drawn`, or more simply. Memory is drawn in any case, so that what follows
// is drawn alike.
Tensor held(Random& random, const SpecPtr& drawn, const std::vector<double>& values, DType dtype, Ease ease) {
  SpecPtr spec = drawn;
  if (ease == Ease::Even) spec = ShardSpec::make(drawn->mesh(), drawn->placements(), drawn->sizes());
  if (ease == Ease::Whole) spec = ShardSpec::replicated(drawn->mesh(), drawn->sizes());
  const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  const Array part = local_part(*spec, spec->mesh().rank(), value, dtype);
  const Array drawn_memory = in_random_memory(random, part);
  return {ease == Ease::AsDrawn ? drawn_memory : drawn_memory.contiguous(), spec};
}

}  // namespace

Tensor random_input(Random& random, const DeviceMesh& mesh, const InputSpec& input,
                    const std::vector<double>& values, const Placing& placing) {
  const DType dtype = dtype_of(input, placing.floating);
  Tensor t;
  if (!mesh.defined() || chance(random, 15)) {
    t = Tensor(in_random_memory(random, Array::from(values, input.sizes, dtype)));
  } else {
    const SpecPtr spec =
        random_spec(random, mesh, input.sizes, {.partial = placing.partial && is_floating(dtype)});
    t = held(random, spec, values, dtype, placing.ease);
  }
  t.set_requires_grad(is_floating(t.dtype()));
  return t;
}

Tensor random_cotangent(Random& random, const DeviceMesh& mesh, const Dims& sizes,
                        const std::vector<double>& values, const Placing& placing) {
  if (!mesh.defined() || chance(random, 30))
    return Tensor(in_random_memory(random, Array::from(values, sizes, placing.floating)));
  return held(random, random_spec(random, mesh, sizes, {.partial = true}), values, placing.floating,
              placing.ease);
}

std::string placed_str(const Tensor& t) {
  return t.is_sharded() ? t.spec()->str() : "plain " + t.sizes().str();
}

namespace {

Tensors requiring(const Tensors& tensors) {
  Tensors list;
  for (const Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) list.push_back(t);
  return list;
}

std::vector<double> uniform(Random& random, std::int64_t n) {
  return draw_values(random, {{n}, InputKind::Any});
}

std::vector<double> values_of(const Tensor& t, const Tensor& like) {
  return t.defined() ? t.to_vector() : std::vector<double>(static_cast<std::size_t>(like.numel()), 0.0);
}

// Same bits on every rank?
bool same_bits(const Tensor& t) {
  if (!t.is_sharded()) return true;
  const Array whole = redistribute(t, ShardSpec::replicated(t.spec()->mesh(), t.sizes()))
                          .local()
                          .to(Device::Cpu)
                          .contiguous();
  return same_everywhere(
      std::string(static_cast<const char*>(whole.raw()), static_cast<std::size_t>(whole.nbytes())));
}

// Gradients with their history if a second pass is to come.
Tensors first_gradients(const Tensors& outputs, const Tensors& leaves, const Tensors& cotangents,
                        bool second) {
  BackwardOptions options;
  options.create_graph = second;
  return grad(outputs, leaves, cotangents, options);
}

}  // namespace

Reference run_plain(Random& random, const OpCase& c, bool second) {
  Reference r;
  Tensors inputs;
  for (const InputSpec& in : c.inputs) {
    r.inputs.push_back(draw_values(random, in));
    inputs.push_back(plain_input(in, r.inputs.back()));
  }
  Tensors outputs;
  r.refused = refusal([&] { outputs = c.call(inputs); });
  for (const Tensor& o : outputs) r.outputs.push_back(o.to_vector());
  const Tensors roots = requiring(outputs);
  const Tensors leaves = requiring(inputs);
  if (roots.empty()) return r;
  Tensors cotangents;
  for (const Tensor& o : roots) {
    r.cotangents.push_back(uniform(random, o.numel()));
    cotangents.emplace_back(Array::from(r.cotangents.back(), o.sizes(), DType::F64));
  }
  const Tensors g = first_gradients(roots, leaves, cotangents, second);
  for (std::size_t i = 0; i < g.size(); ++i) r.gradients.push_back(values_of(g[i], leaves[i]));
  if (!second) return r;
  Tensors again;
  Tensors directions;
  for (std::size_t i = 0; i < g.size(); ++i) {
    r.directions.push_back(uniform(random, leaves[i].numel()));
    if (!g[i].defined() || !g[i].requires_grad()) continue;
    again.push_back(g[i]);
    directions.emplace_back(Array::from(r.directions.back(), leaves[i].sizes(), DType::F64));
  }
  if (again.empty()) return r;
  const Tensors h = grad(again, leaves, directions);
  for (std::size_t i = 0; i < h.size(); ++i) r.second.push_back(values_of(h[i], leaves[i]));
  return r;
}

namespace {

struct Pass {
  Tensors roots, leaves, cotangents;
};

// How far off the gradient of one of the leaves is alone, for which others and what is before them are left
// out. The graph stays.
double one_alone(Random& random, const Pass& pass, const Reference& reference, bool may_be_recorded) {
  const auto i =
      static_cast<std::size_t>(random_int(random, 0, static_cast<std::int64_t>(pass.leaves.size()) - 1));
  const bool recorded = may_be_recorded && chance(random, 50);
  const Tensor g = grad(pass.roots, {pass.leaves[i]}, pass.cotangents,
                        {.retain_graph = true, .create_graph = recorded})[0];
  return difference(values_of(g, pass.leaves[i]), reference.gradients[i]);
}

}  // namespace

Parity run_on_mesh(Random& random, const DeviceMesh& mesh, const OpCase& c, const Reference& reference,
                   const Holding& holding) {
  Parity p;
  Tensors inputs;
  const auto placing = [&](DType floating) {
    const std::size_t at = p.tensors++;
    return Placing{.floating = floating, .ease = at < holding.ease.size() ? holding.ease[at] : Ease::AsDrawn};
  };
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(random_input(random, mesh, c.inputs[i], reference.inputs[i], placing(holding.floating)));
    p.where += fmt::format("\n  {}", placed_str(inputs.back()));
  }
  Tensors outputs;
  p.refused = refusal([&] { outputs = c.call(inputs); });
  if (!p.refused.empty() || !reference.refused.empty()) return p;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    p.where += fmt::format("\n  -> {}", placed_str(outputs[i]));
    p.outputs = std::max(p.outputs, difference(outputs[i].to_vector(), reference.outputs[i]));
    p.replicas = p.replicas && same_bits(outputs[i]);
  }
  const Tensors roots = requiring(outputs);
  const Tensors leaves = requiring(inputs);
  if (roots.empty()) return p;
  Tensors cotangents;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    cotangents.push_back(
        random_cotangent(random, mesh, roots[i].sizes(), reference.cotangents[i], placing(roots[i].dtype())));
    p.where += fmt::format("\n  cotangent {}", placed_str(cotangents.back()));
  }
  const auto compare = [&](const Tensors& gradients) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& g = gradients[i];
      p.gradients = std::max(p.gradients, difference(values_of(g, leaves[i]), reference.gradients[i]));
      if (g.defined()) p.replicas = p.replicas && same_bits(g);
    }
  };
  const bool second = !reference.second.empty();
  p.gradients = one_alone(random, {roots, leaves, cotangents}, reference, second);
  const Tensors g = first_gradients(roots, leaves, cotangents, second);
  compare(g);
  if (!second) return p;
  Tensors again;
  Tensors directions;
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (!g[i].defined() || !g[i].requires_grad()) continue;
    again.push_back(g[i]);
    directions.push_back(random_cotangent(random, mesh, leaves[i].sizes(), reference.directions[i],
                                          placing(leaves[i].dtype())));
  }
  const Tensors h =
      again.empty() ? Tensors(leaves.size()) : grad(again, leaves, directions, {.retain_graph = true});
  for (std::size_t i = 0; i < h.size(); ++i)
    p.second = std::max(p.second, difference(values_of(h[i], leaves[i]), reference.second[i]));
  // A pass that is not recorded takes other ways: kernels for whole gradients, memory that is given back.
  compare(first_gradients(roots, leaves, cotangents, false));
  return p;
}

double difference(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double scale = 1;
  for (const double e : expected)
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double d = std::abs(got[i] - expected[i]) / scale;
    worst = std::isnan(d) ? HUGE_VAL : std::max(worst, d);
  }
  return worst;
}

}  // namespace tessera::ops_cases
