// What operations with windows refuse, and corners in which they follow PyTorch.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

Tensor zeros_of(const Dims& sizes, DType dtype = DType::F32) { return Tensor(Array::zeros(sizes, dtype)); }

Tensor anywhere(Random& random, const DeviceMesh& mesh, const Tensor& plain) {
  if (!plain.defined() || chance(random, 20)) return plain;
  return redistribute(plain, random_spec(random, mesh, plain.sizes()));
}

// What a call on these tensors says when it refuses: the same on every rank and under every placement, before
// anything is sent.
void check_refused(const std::string& said, const Tensors& inputs,
                   const std::function<Tensor(const Tensors&)>& call) {
  auto random = test_random(90);
  const std::vector<DeviceMesh> meshes = all_meshes();
  INFO(said);
  for (int trial = 0; trial < 6; ++trial) {
    const DeviceMesh& mesh = pick(random, meshes);
    Tensors placed;
    for (const Tensor& t : inputs) placed.push_back(trial == 0 ? t : anywhere(random, mesh, t));
    const auto before = test_world().recorder().totals().calls;
    const std::string message = refusal([&] { call(placed); });
    CHECK(test_world().recorder().totals().calls == before);
    CHECK_THAT(message, Catch::Contains(said));
    CHECK(same_everywhere(message));
  }
}

}  // namespace

TEST_CASE("transposed convolution refuses what PyTorch refuses", "[ops]") {
  const Tensor x = zeros_of({1, 2, 4});
  const Tensor w = zeros_of({2, 3, 3});
  const auto with = [](const ConvTransposeOptions& o) {
    return [o](const Tensors& t) { return conv_transpose1d(t[0], t[1], t.size() > 2 ? t[2] : Tensor(), o); };
  };
  const auto plain = with({});
  CHECK(plain({x, w}).sizes() == Dims{1, 3, 6});
  check_refused("undefined", {Tensor(), w}, plain);
  check_refused("2 kernel dims", {x, w},
                [](const Tensors& t) { return conv_transpose2d(t[0], t[1], Tensor()); });
  check_refused("given [2, 3, 3] and [4]", {zeros_of({4}), w}, plain);
  check_refused("one floating dtype, given f64 and f32", {zeros_of({1, 2, 4}, DType::F64), w}, plain);
  check_refused("one floating dtype", {zeros_of({1, 2, 4}, DType::I64), zeros_of({2, 3, 3}, DType::I64)},
                plain);
  check_refused("takes 2 input channels, the input [1, 3, 4] has 3", {zeros_of({1, 3, 4}), w}, plain);
  check_refused("with 3 groups", {x, w}, with({.groups = 3}));
  check_refused("spatial dims must not be empty", {zeros_of({1, 2, 0}), w}, plain);
  check_refused("the bias must have 3 elements", {x, w, zeros_of({2})}, plain);
  check_refused("the bias must have 6 elements", {x, w, zeros_of({3})}, with({.groups = 2}));
  check_refused("stride must be at least 1", {x, w}, with({.stride = {0}}));
  check_refused("padding must be at least 0", {x, w}, with({.padding = {-1}}));
  check_refused("one value or 1", {x, w}, with({.stride = {1, 2}}));
  check_refused("output_padding [1] must be smaller than stride [1] or dilation [1]", {x, w},
                with({.output_padding = {1}}));
  CHECK(with({.output_padding = {1}, .dilation = {2}})({x, w}).sizes() == Dims{1, 3, 9});
  check_refused("of size 4 would have 0 positions", {x, w}, with({.padding = {3}}));
}

TEST_CASE("convolution takes maps without a batch dim and keeps sizes where asked", "[ops]") {
  const Tensor w = zeros_of({3, 2, 4, 5});
  const auto with = [](const ConvOptions& o) {
    return [o](const Tensors& t) { return conv2d(t[0], t[1], Tensor(), o); };
  };
  CHECK(with({.same = true})({zeros_of({2, 7, 8}), w}).sizes() == Dims{3, 7, 8});
  CHECK(with({.dilation = {2, 1}, .same = true})({zeros_of({1, 2, 7, 8}), w}).sizes() == Dims{1, 3, 7, 8});
  check_refused("stride 1 only, given [2, 2]", {zeros_of({2, 7, 8}), w}, with({.stride = {2}, .same = true}));
  check_refused("given [7, 8]", {zeros_of({7, 8}), w}, with({}));
  check_refused("the input [3, 7, 8] has 3", {zeros_of({3, 7, 8}), w}, with({}));
}
