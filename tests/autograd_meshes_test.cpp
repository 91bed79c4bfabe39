// The tape across meshes: a change of mesh has the identity as its gradient, first and second, whatever the
// two specs are; what is computed on either side knows its own mesh only.
#include <catch2/catch.hpp>

#include "autograd/adjoints.h"
#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"
#include "tests/placed_values.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::placed_values;

namespace {

// Every shape of mesh, and each with the ranks the other way round.
std::vector<DeviceMesh> meshes_both_ways() {
  std::vector<DeviceMesh> meshes = all_meshes();
  std::vector<int> backwards;
  for (int r = test_world().size() - 1; r >= 0; --r) backwards.push_back(r);
  for (const DeviceMesh& mesh : all_meshes()) {
    std::vector<int> sizes;
    for (const MeshAxis& a : mesh.axes()) sizes.push_back(a.size);
    meshes.push_back(mesh_over(test_world().subgroup({backwards}), sizes));
  }
  return meshes;
}

}  // namespace

TEST_CASE("every change of mesh has the identity as its gradient", "[autograd]") {
  auto random = test_random(151);
  const std::vector<DeviceMesh> meshes = meshes_both_ways();
  for (int trial = 0; trial < trials(150); ++trial) {
    const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 1, 3)), 5);
    const std::int64_t n = numel_of(sizes);
    const Values xv = random_values(random, n);
    const Values c = random_values(random, n);
    const Tensor x = placed(xv, random_spec(random, pick(random, meshes), sizes, {.partial = true}));
    const SpecPtr to = random_spec(random, pick(random, meshes), sizes, {.partial = true});
    // The cotangent may come on a third mesh.
    const Tensor cotangent =
        chance(random, 40)
            ? plain(c, sizes)
            : placed(c, random_spec(random, pick(random, meshes), sizes, {.partial = true}), false);
    INFO(x.spec()->str() << " to " << to->str() << ", cotangent "
                         << (cotangent.is_sharded() ? cotangent.spec()->str() : "plain"));
    const Tensor square_here = x * x;  // its gradient needs x, on the mesh of x
    const Tensor y = square_here.redistribute(to);
    CHECK(y.spec() == to);
    Values squares;
    Values first;
    Values second;
    for (std::size_t i = 0; i < xv.size(); ++i) {
      squares.push_back(xv[i] * xv[i]);
      first.push_back(4 * xv[i] * xv[i] * xv[i] * c[i]);
      second.push_back(12 * xv[i] * xv[i] * c[i]);
    }
    check_close(y.to_vector(), squares);
    const Tensor fourth = y * y;
    const Tensor dx = grad({fourth}, {x}, {cotangent}, {.create_graph = true})[0];
    check_close(dx.to_vector(), first);
    sum(dx).backward({}, {.retain_graph = true});
    check_close(x.grad().to_vector(), second);
    CHECK(x.grad().spec() == without_partial(*x.spec()));
    x.zero_grad();
    fourth.backward(cotangent);
    check_close(x.grad().to_vector(), first);
    // By way of a plain tensor.
    x.zero_grad();
    const Tensor beside = placed(c, without_partial(*to), false);
    sum((x * x).full_tensor() * beside).backward();
    for (std::size_t i = 0; i < xv.size(); ++i) first[i] = 2 * xv[i] * c[i];
    check_close(x.grad().to_vector(), first);
  }
}

TEST_CASE("there and back, and a parameter used on both meshes", "[autograd]") {
  auto random = test_random(152);
  const std::vector<DeviceMesh> meshes = meshes_both_ways();
  for (int trial = 0; trial < trials(30); ++trial) {
    const DeviceMesh& a = pick(random, meshes);
    const DeviceMesh& b = pick(random, meshes);
    const Dims sizes{4, 3};
    const SpecPtr here = random_spec(random, a, sizes);
    const SpecPtr there = random_spec(random, b, sizes);
    INFO(here->str() << " and " << there->str());
    const Tensor x = placed(random_values(random, 12), here);
    const Tensor w = plain(random_values(random, 3), {3}, true);
    const auto f = [&](const Tensors& in) {
      const Tensor inner = sin(redistribute(in[0] * in[1], there) * in[1]);
      return Tensors{mean(redistribute(inner, here) * in[0] * in[1])};
    };
    const GradcheckResult result = gradcheck(f, {x, w}, {.second = true});
    INFO(result.message);
    CHECK(result.ok);
  }
}

TEST_CASE("parts of a plain tensor used on two meshes, and hooks that give a gradient on another one",
          "[autograd]") {
  auto random = test_random(153);
  const std::vector<DeviceMesh> meshes = meshes_both_ways();
  for (int trial = 0; trial < trials(30); ++trial) {
    const Dims sizes{4, 3};
    const Values xv = random_values(random, 12);
    const Values av = random_values(random, 6);
    const Values bv = random_values(random, 6);
    const SpecPtr here = random_spec(random, pick(random, meshes), {2, 3}, {.partial = true});
    const SpecPtr there = random_spec(random, pick(random, meshes), {2, 3}, {.partial = true});
    INFO(here->str() << " and " << there->str());
    Values expected;
    for (std::size_t i = 0; i < 12; ++i) expected.push_back(2 * xv[i] * (i < 6 ? av[i] : 5 * bv[i - 6]));
    const Tensor x = plain(xv, sizes, true);
    const Tensors parts = split(square(x), {2, 2}, 0);
    const Tensor above = parts[0] * placed(av, here, false);
    const Tensor below = parts[1] * placed(bv, there, false);
    below.register_hook([&](const Tensor& g) { return redistribute(g * 5.0, here); });
    (sum(above).full_tensor() + sum(below).full_tensor()).backward();
    check_close(x.grad().to_vector(), expected);
  }
}

TEST_CASE("redistribute onto a mesh by placements", "[autograd]") {
  const int ranks = test_world().size();
  const DeviceMesh line(test_world(), {{"domain", ranks}});
  const DeviceMesh grid(test_world(), {{"ddp", 1}, {"domain", ranks}});
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
  lengths.back() = 6;
  const SpecPtr uneven = ShardSpec::from_lengths(line, {Shard(0)}, {6, 2}, {lengths});
  Values values;
  for (int i = 0; i < 12; ++i) values.push_back(i);
  const Tensor x = placed(values, uneven, false);
  CHECK(x.redistribute(grid, {Replicate(), Shard(0)}).spec() ==
        ShardSpec::make(grid, {Replicate(), Shard(0)}, {6, 2}));
  CHECK(redistribute(x, line, {Shard(0)}).spec() == uneven);  // as it is cut already
  CHECK(redistribute(plain(values, {6, 2}), grid, {Shard(1), Shard(0)}).to_vector() == values);
  const auto told = [&](const auto& f, const std::string& part) {
    const std::string text = refusal(f);
    CHECK(contains(text, part));
    CHECK(same_everywhere(text));
  };
  told([&] { x.redistribute(DeviceMesh(), {Shard(0)}); }, "redistribute: the mesh is undefined");
  told([&] { x.redistribute(grid, {Shard(0)}); }, "1 placements given, the mesh ddp=1,domain=");
  told(
      [&] {
        x.redistribute(ShardSpec::make(grid, {Replicate(), Shard(0)}, {7, 2}));
      },
      "the tensor has global sizes [6, 2], the spec [7, 2]");
  told(
      [&] {
        add(x, x.redistribute(grid, {Replicate(), Shard(0)}));
      },
      "redistribute(tensor, mesh, placements) moves one");
}
