// Optimizers against naive loops written from their formulas; schedules; clipping over shards.
#include <limits>

#include "autograd/node.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"

namespace tessera {
namespace {

struct Leaf {
  Tensor tensor;
  std::vector<double> expected;
  std::vector<double> m;
  std::vector<double> v;
};

std::vector<Leaf> make_leaves(std::mt19937_64& random, DType dtype) {
  std::vector<Leaf> leaves;
  for (const Dims& sizes : {Dims{3, 4}, Dims{5}, Dims{}, Dims{0, 2}, Dims{70000}}) {
    Leaf l;
    l.tensor = here(random_tensor(random, sizes, dtype)).set_requires_grad();
    l.expected = l.tensor.to_vector();
    l.m.assign(l.expected.size(), 0.0);
    l.v.assign(l.expected.size(), 0.0);
    leaves.push_back(std::move(l));
  }
  return leaves;
}

Tensors tensors_of(const std::vector<Leaf>& leaves) {
  Tensors list;
  for (const Leaf& l : leaves) list.push_back(l.tensor);
  return list;
}

// Decoupled weight decay as printed in the paper, in double.
void adamw_formula(Leaf& l, const std::vector<double>& g, const optim::AdamWOptions& o, double lr, int t) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    l.m[i] = o.betas.first * l.m[i] + (1 - o.betas.first) * g[i];
    l.v[i] = o.betas.second * l.v[i] + (1 - o.betas.second) * g[i] * g[i];
    const double mhat = l.m[i] / (1 - std::pow(o.betas.first, t));
    const double vhat = l.v[i] / (1 - std::pow(o.betas.second, t));
    l.expected[i] -= lr * (o.weight_decay * l.expected[i] + mhat / (std::sqrt(vhat) + o.eps));
  }
}

void sgd_formula(Leaf& l, const std::vector<double>& grad, const optim::SGDOptions& o, int t) {
  for (std::size_t i = 0; i < grad.size(); ++i) {
    double g = grad[i] + o.weight_decay * l.expected[i];
    if (o.momentum != 0) {
      l.m[i] = t == 1 ? g : o.momentum * l.m[i] + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * l.m[i] : l.m[i];
    }
    l.expected[i] -= o.lr * g;
  }
}

double worst_error(const std::vector<Leaf>& leaves) {
  double worst = 0;
  for (const Leaf& l : leaves) {
    const auto got = l.tensor.to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - l.expected[i]) / std::max(1.0, std::abs(l.expected[i])));
  }
  return worst;
}

}  // namespace

TEST_CASE("AdamW follows its formula, with schedules and absent gradients", "[optim]") {
  for (DType dtype : {DType::F32, DType::F64}) {
    auto random = test_random(1);
    std::vector<Leaf> leaves = make_leaves(random, dtype);
    const optim::AdamWOptions options{.lr = 1e-2, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1};
    optim::AdamW optimizer(tensors_of(leaves), options);
    const auto schedule = optim::warmup_cosine({.peak = 1e-2, .warmup = 3, .total = 8, .floor = 1e-3});
    std::vector<int> steps(leaves.size(), 0);
    for (int step = 0; step < 6; ++step) {
      optimizer.set_lr(schedule(step));
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        Leaf& l = leaves[i];
        l.tensor.zero_grad();
        if (i == 1 && step % 2 == 0) continue;  // no gradient: neither moment nor decay
        const Tensor g = here(random_tensor(random, l.tensor.sizes(), dtype));
        l.tensor.set_grad(g);
        adamw_formula(l, g.to_vector(), options, schedule(step), ++steps[i]);
      }
      const std::uint32_t version = leaves[0].tensor.local().version();
      optimizer.step();
      CHECK(leaves[0].tensor.local().version() > version);
    }
    CHECK(worst_error(leaves) < (dtype == DType::F32 ? 3e-6 : 1e-14));
  }
}

TEST_CASE("AdamW takes gradients of any memory order and goes on from its state", "[optim]") {
  auto random = test_random(2);
  const Tensor a0 = here(random_tensor(random, {3, 4}));
  const Tensor g = here(random_tensor(random, {4, 3}));
  const auto run = [&](int steps, optim::AdamW& o, const Tensor& p, bool transposed) {
    for (int i = 0; i < steps; ++i) {
      p.set_grad(transposed ? transpose(g, 0, 1) : contiguous(transpose(g, 0, 1)));
      o.step();
    }
  };
  Tensor a = Tensor(a0.local().clone()).set_requires_grad();
  Tensor b = Tensor(a0.local().clone()).set_requires_grad();
  optim::AdamW oa(Tensors{a});
  optim::AdamW ob(Tensors{b});
  CHECK(oa.state().empty());
  run(4, oa, a, true);
  run(2, ob, b, false);
  Tensor c = Tensor(b.local().clone()).set_requires_grad();
  optim::AdamW oc(Tensors{c});
  oc.load_state(ob.state());
  run(2, oc, c, false);
  CHECK(a.to_vector() == c.to_vector());
  CHECK(oc.state().front().name == "0.step");
  CHECK(oc.state().front().value.at(0) == 4);
  CHECK_THROWS_WITH(oc.load_state({{"1.exp_avg", Array::zeros({3, 4}, DType::F64)}}),
                    Catch::Contains("state '1.exp_avg' is unknown"));
  CHECK_THROWS_WITH(oc.load_state({{"0.exp_avg", Array::zeros({4}, DType::F64)}}),
                    Catch::Contains("has sizes"));
}

TEST_CASE("SGD follows its formula", "[optim]") {
  const std::vector<optim::SGDOptions> variants{
      {.lr = 0.1},
      {.lr = 0.1, .weight_decay = 0.2},
      {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
      {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}};
  for (DType dtype : {DType::F32, DType::F64}) {
    for (const optim::SGDOptions& options : variants) {
      auto random = test_random(3);
      std::vector<Leaf> leaves = make_leaves(random, dtype);
      optim::SGD optimizer(tensors_of(leaves), options);
      for (int t = 1; t <= 4; ++t) {
        for (Leaf& l : leaves) {
          const Tensor g = here(random_tensor(random, l.tensor.sizes(), dtype));
          l.tensor.set_grad(g);
          sgd_formula(l, g.to_vector(), options, t);
        }
        optimizer.step();
      }
      CHECK(worst_error(leaves) < (dtype == DType::F32 ? 3e-6 : 1e-14));
    }
  }
}

TEST_CASE("biases, norms and embeddings do not decay", "[optim]") {
  nn::ViT model(
      {.channels = 1, .image = {4, 4}, .patch = {2, 2}, .width = 4, .depth = 1, .heads = 1, .classes = 2});
  const auto groups = optim::decay_groups(model, 0.1);
  REQUIRE(groups.size() == 2);
  // embed, qkv, proj, fc1, fc2 and head weights; embed.weight is a layer's weight, not an embedding table
  CHECK(groups[0].params.size() == 6);
  CHECK(*groups[0].weight_decay == 0.1);
  CHECK(*groups[1].weight_decay == 0.0);
  bool found = false;
  for (const Tensor& p : groups[1].params) found = found || p.same(model.pos_embed);
  CHECK(found);
  optim::AdamW optimizer(groups, {.lr = 0.5, .weight_decay = 0.3});
  const auto before = model.norm.weight.to_vector();
  const auto head = model.head.weight.to_vector();
  model.norm.weight.set_grad(zeros_like(model.norm.weight));
  model.head.weight.set_grad(zeros_like(model.head.weight));
  optimizer.step();
  CHECK(model.norm.weight.to_vector() == before);
  CHECK(model.head.weight.to_vector()[1] == Approx(head[1] * (1 - 0.5 * 0.1)));
}

TEST_CASE("schedules", "[optim]") {
  CHECK(optim::constant(0.3)(100) == 0.3);
  const auto line = optim::linear(1.0, 0.0, 4);
  CHECK(line(0) == 1.0);
  CHECK(line(1) == 0.75);
  CHECK(line(9) == 0.0);
  const auto steps = optim::step_decay(1.0, 10, 0.5);
  CHECK(steps(9) == 1.0);
  CHECK(steps(20) == 0.25);
  const auto cosine = optim::warmup_cosine({.peak = 2.0, .warmup = 4, .total = 12, .floor = 0.5});
  CHECK(cosine(0) == 0.5);
  CHECK(cosine(3) == 2.0);
  CHECK(cosine(4) == 2.0);
  CHECK(cosine(8) == Approx(1.25));
  CHECK(cosine(11) > 0.5);
  CHECK(cosine(12) == 0.5);
  CHECK_THROWS_WITH(optim::warmup_cosine({.warmup = 5, .total = 4}), Catch::Contains("warmup <= total"));
}

TEST_CASE("wrong optimizers are refused", "[optim]") {
  Tensor p = ones({2}).set_requires_grad();
  CHECK_THROWS_WITH(optim::AdamW(Tensors{}), Catch::Contains("no parameters"));
  CHECK_THROWS_WITH(optim::AdamW(Tensors{p, p}), Catch::Contains("given twice"));
  CHECK_THROWS_WITH(optim::AdamW(Tensors{ones({1})}), Catch::Contains("not a leaf that requires"));
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const SpecPtr owed = ShardSpec::make(mesh, {Partial()}, {2});
  const Tensor terms = Tensor(ones({2}).local(), owed).set_requires_grad();
  CHECK_THROWS_WITH(optim::SGD(Tensors{p, terms}),
                    Catch::Contains("parameter 1 is a sum that the ranks owe"));
  CHECK_THROWS_WITH(optim::AdamW(Tensors{p}, {.betas = {0.9, 1.0}}), Catch::Contains("[0, 1)"));
  CHECK_THROWS_WITH(optim::AdamW(Tensors{p}, {.lr = -1.0}), Catch::Contains("learning rate -1"));
  CHECK_THROWS_WITH(optim::SGD(Tensors{p}, {.nesterov = true}), Catch::Contains("needs momentum"));
  CHECK_THROWS_WITH(optim::clip_grad_norm_({p}, 0.0), Catch::Contains("must be positive"));
}

TEST_CASE("clipping: one norm of all gradients, shared arrays scaled once", "[optim]") {
  Tensor a = here(zeros({2}, DType::F64)).set_requires_grad();
  Tensor b = here(zeros({2}, DType::F64)).set_requires_grad();
  Tensor c = here(zeros({3}, DType::F64)).set_requires_grad();
  const std::vector<double> weights{3.0, 4.0};
  // a and b get one and the same gradient, c an expanded one.
  sum((a + b) * here(tensor(weights, {2}, DType::F64))).backward();
  sum(c).backward();
  const double norm = std::sqrt(25.0 + 25.0 + 3.0);
  CHECK(optim::clip_grad_norm_({a, b, c}, 100.0) == Approx(norm));
  CHECK(a.grad().to_vector() == weights);
  CHECK(optim::clip_grad_norm_({a, b, c}, 1.0) == Approx(norm));
  for (const Tensor& t : {a, b}) CHECK(t.grad().to_vector()[0] == Approx(3.0 / norm));
  CHECK(c.grad().to_vector()[2] == Approx(1.0 / norm));
  CHECK(optim::grad_norm({a, b, c}) == Approx(1.0));

  a.set_grad(here(full({2}, std::numeric_limits<double>::infinity(), DType::F64)));
  CHECK(std::isinf(optim::clip_grad_norm_({a, b}, 0.5)));
  CHECK(b.grad().to_vector()[0] == Approx(3.0 / norm));
}

// The fused form against its parts, over several steps, clipped and not.
template <class Optimizer, class Options>
void check_clipped_step(const Options& options, DType dtype) {
  Generator generator(5);
  std::vector<Tensor> params[2];
  for (int i = 0; i < 4; ++i) {
    const Tensor p = here(randn({i + 1, 7}, generator, dtype));
    for (auto& side : params) side.push_back(Tensor(p.local().clone()).set_requires_grad());
  }
  Optimizer fused(params[0], options);
  Optimizer parts(params[1], options);
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < 4; ++i) {
      const Tensor g = here(randn(params[0][i].sizes(), generator, dtype) * (step == 2 ? 0.01 : 3.0));
      for (auto& side : params) side[i].set_grad(Tensor(g.local().clone()));
    }
    const std::vector<double> before = params[0][3].grad().to_vector();
    const double norm = optim::clip_grad_norm_(params[1], 1.0);
    parts.step();
    CHECK(fused.step_clipped(1.0) == norm);
    CHECK((norm > 1.0) == (step != 2));
    CHECK(params[0][3].grad().to_vector() == before);
  }
  const double tolerance = dtype == DType::F64 ? 1e-14 : 1e-6;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto a = params[0][i].to_vector();
    const auto b = params[1][i].to_vector();
    for (std::size_t j = 0; j < a.size(); ++j)
      CHECK(a[j] == Approx(b[j]).margin(tolerance).epsilon(tolerance));
  }
}

TEST_CASE("a clipped step equals clipping and then stepping", "[optim]") {
  for (const DType dtype : {DType::F32, DType::F64}) {
    check_clipped_step<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .weight_decay = 0.1}, dtype);
    check_clipped_step<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}, dtype);
    check_clipped_step<optim::SGD>(optim::SGDOptions{.lr = 0.1}, dtype);
  }
  Tensor p = ones({2}).set_requires_grad();
  optim::SGD sgd(Tensors{p}, {});
  CHECK_THROWS_WITH(sgd.step_clipped(-1.0),
                    Catch::Contains("step_clipped") && Catch::Contains("must be positive"));
}

// Gradient shards (3, 0, 4) and (-12, 0) on two ranks: the norm is 13, on both.
TEST_CASE("the norm over sharded gradients is that of the whole", "[optim]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
  lengths.front() = ranks == 1 ? 5 : 3;
  if (ranks > 1) lengths.back() = 2;
  const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(0)}, {5}, {lengths});
  const std::vector<double> values{3, 0, 4, -12, 0};
  Tensor p = Tensor(Array::zeros(spec->local_sizes(), DType::F64, test_device()), spec).set_requires_grad();
  p.set_grad(redistribute(here(tensor(values, {5}, DType::F64)), spec));
  CHECK(optim::clip_grad_norm_({p}, 1.0) == 13.0);
  const std::vector<double> expected{3.0 / 13, 0, 4.0 / 13, -12.0 / 13, 0};
  const auto got = p.grad().to_vector();
  for (std::size_t i = 0; i < 5; ++i) CHECK(got[i] == Approx(expected[i]).margin(0));
  // An optimizer steps every rank's own part.
  optim::SGD sgd(Tensors{p}, {.lr = 13.0});
  sgd.step();
  CHECK(p.to_vector()[3] == Approx(12.0));
}

}  // namespace tessera
