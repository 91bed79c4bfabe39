// Every operation's gradient, and the gradient of that, against central differences: plain and sharded.
#include <catch2/catch.hpp>

#include "autograd/gradcheck.h"
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

}  // namespace

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
