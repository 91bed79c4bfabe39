// Every operation's gradient, and the gradient of that, against central differences: plain and sharded.
#include <catch2/catch.hpp>

#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "tests/ops_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::ops_cases;

namespace {

void check_one(Random& random, const OpFamily& family, const DeviceMesh* mesh) {
  const OpCase c = family.draw(random);
  Tensors inputs;
  std::string where;
  bool any = false;
  for (const InputSpec& in : c.inputs) {
    const std::vector<double> values = draw_values(random, in);
    inputs.push_back(
        random_input(random, mesh != nullptr ? *mesh : DeviceMesh(), in, values, {.partial = false}));
    where += fmt::format("\n  {}", placed_str(inputs.back()));
    any = any || inputs.back().requires_grad();
  }
  if (!c.smooth || !any) return;
  INFO(c.text << where);
  const GradcheckResult result = gradcheck(
      c.call, inputs, {.step = 1e-5, .tolerance = 2e-6, .max_elements = 4, .second = true, .seed = random()});
  INFO(result.message << ", worst " << result.worst);
  CHECK(result.ok);
}

// The graph of a call, of its gradients too, goes with the last tensor that holds it: whatever a node keeps
// must not hold the node itself.
void check_freed(Random& random, const OpFamily& family, bool differentiated) {
  const OpCase c = family.draw(random);
  std::vector<std::weak_ptr<Node>> made;
  {
    Tensors inputs;
    for (const InputSpec& in : c.inputs) inputs.push_back(plain_input(in, draw_values(random, in)));
    Tensors outputs;
    if (!refusal([&] { outputs = c.call(inputs); }).empty()) return;
    std::erase_if(outputs, [](const Tensor& t) { return !t.requires_grad(); });
    std::erase_if(inputs, [](const Tensor& t) { return !t.requires_grad(); });
    for (const Tensor& t : outputs) made.emplace_back(t.grad_fn());
    Tensors cotangents;
    for (const Tensor& t : outputs) cotangents.emplace_back(Array::full(t.sizes(), 1.0, t.dtype()));
    Tensors gradients;
    if (differentiated && !outputs.empty())
      gradients = grad(outputs, inputs, cotangents, {.create_graph = true});
    for (const Tensor& t : gradients)
      if (t.defined() && t.requires_grad()) made.emplace_back(t.grad_fn());
  }
  INFO(c.text << (differentiated ? ", differentiated" : ""));
  CHECK(std::all_of(made.begin(), made.end(), [](const auto& node) { return node.expired(); }));
}

}  // namespace

TEST_CASE("a graph that nobody holds is freed", "[ops]") {
  auto random = test_random(62);
  for (int trial = 0; trial < trials(3); ++trial)
    for (const OpFamily& family : families())
      for (const bool differentiated : {false, true}) check_freed(random, family, differentiated);
}

TEST_CASE("finite differences on one device", "[ops]") {
  auto random = test_random(60);
  for (int trial = 0; trial < trials(3); ++trial)
    for (const OpFamily& family : families()) check_one(random, family, nullptr);
}

TEST_CASE("finite differences over ranks", "[ops]") {
  auto random = test_random(61);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(3); ++trial)
    for (const OpFamily& family : families()) check_one(random, family, &pick(random, meshes));
}

TEST_CASE("finite differences notice a wrong gradient", "[ops]") {
  Tensor x(Array::from(std::vector<double>{0.3, -0.7, 1.1}, {3}, DType::F64));
  x.set_requires_grad();
  const auto wrong = [](const Tensors& t) { return Tensors{t[0] * t[0].detach()}; };  // half of it
  const GradcheckResult first = gradcheck(wrong, {x});
  CHECK_FALSE(first.ok);
  CHECK(contains(first.message, "finite difference"));
  // Right gradient, wrong second derivative.
  const auto twice = [](const Tensors& t) {
    return Tensors{t[0] * t[0].detach() * 2.0 - square(t[0]).detach()};
  };
  CHECK(gradcheck(twice, {x}).ok);
  CHECK_FALSE(gradcheck(twice, {x}, {.second = true}).ok);
  CHECK(contains(refusal([&] { gradcheck(wrong, {x.detach()}); }), "no input requires a gradient"));
}
