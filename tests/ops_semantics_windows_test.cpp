// What operations with windows refuse, and corners in which they follow PyTorch.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "comm/virtual.h"
#include "ops/ops.h"
#include "ops/window/pool_args.h"
#include "ops/window/window_plan.h"
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
  check_refused("only the spatial dims of an empty batch may be empty, given [1, 2, 0]",
                {zeros_of({1, 2, 0}), w}, plain);
  check_refused("only the spatial dims of an empty batch", {zeros_of({2, 0}), w}, plain);
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

TEST_CASE("reflected and replicated padding refuse what PyTorch refuses", "[ops]") {
  const auto with = [](PadMode mode, const std::vector<std::int64_t>& amounts) {
    return [=](const Tensors& t) { return pad(t[0], amounts, mode); };
  };
  const Tensor x = zeros_of({2, 3, 5});
  for (const PadMode mode : {PadMode::Reflect, PadMode::Replicate}) {
    const std::string name = "pad: ";
    check_refused(name + "needs an input [N, C, 1 spatial dims] or [C, …], given [5]", {zeros_of({5})},
                  with(mode, {1, 1}));
    check_refused(name + "needs an input", {zeros_of({2, 2, 3, 5})}, with(mode, {1, 1}));
    check_refused(name + "needs an input", {zeros_of({3, 5})}, with(mode, {1, 1, 1, 1}));
    check_refused(name + "1 to 3 dims can be padded so, given 4", {zeros_of({2, 2, 2, 2, 2})},
                  with(mode, {1, 1, 1, 1, 1, 1, 1, 1}));
    check_refused(name + "1 to 3 dims", {x}, with(mode, {}));
    check_refused(name + "no dim but the batch may be empty", {zeros_of({2, 3, 0})}, with(mode, {0, 0}));
    check_refused(name + "no dim but the batch may be empty", {zeros_of({2, 0, 3})}, with(mode, {1, 1}));
    check_refused(name + "needs a tensor of numbers, given bool", {zeros_of({2, 3, 5}, DType::Bool)},
                  with(mode, {1, 1}));
    check_refused(name + "dim 2 of size 5 cannot be padded by -3 and -2", {x}, with(mode, {-3, -2}));
    CHECK(with(mode, {-2, -2})({x}).sizes() == Dims{2, 3, 1});
    CHECK(with(mode, {4, -4})({x}).sizes() == Dims{2, 3, 5});
    CHECK(with(mode, {1, 1})({zeros_of({0, 3, 5})}).sizes() == Dims{0, 3, 7});
  }
  check_refused("padded by 5 and 0: reflected padding must be smaller", {x}, with(PadMode::Reflect, {5, 0}));
  CHECK(with(PadMode::Replicate, {6, 9})({x}).sizes() == Dims{2, 3, 20});
}

TEST_CASE("pools refuse what PyTorch refuses", "[ops]") {
  const Tensor x = zeros_of({2, 3, 8, 6});
  const auto average = [](const Dims& kernel, const AvgPoolOptions& o = {}) {
    return [=](const Tensors& t) { return avg_pool2d(t[0], kernel, o); };
  };
  const auto largest = [](const Dims& kernel, const MaxPoolOptions& o = {}) {
    return [=](const Tensors& t) { return max_pool2d(t[0], kernel, o); };
  };
  check_refused("avg_pool2d: kernel_size must be at least 1", {x}, average({0}));
  check_refused("kernel_size needs one value or 2", {x}, average({1, 2, 3}));
  check_refused("stride must be at least 1", {x}, average({2}, {.stride = {0}}));
  check_refused("padding must be at least 0", {x}, average({2}, {.padding = {-1}}));
  check_refused("padding [2, 2] is more than half of kernel_size [3, 3]", {x},
                average({3}, {.padding = {2}}));
  check_refused("reaches over 9 positions of spatial dim 0, the padded input has 8", {x}, average({9, 1}));
  check_refused("divisor_override must not be 0", {x}, average({2}, {.divisor_override = 0}));
  check_refused("needs an input [N, C, 2 spatial dims]", {zeros_of({8, 6})}, average({2}));
  check_refused("needs a floating tensor, given i32", {zeros_of({2, 8, 6}, DType::I32)}, average({2}));
  for (const Dims& empty : {Dims{2, 0, 8, 6}, Dims{2, 3, 0, 6}, Dims{2, 3, 8, 0}})
    check_refused("no dim but the batch may be empty", {zeros_of(empty)}, average({2}));
  check_refused("the input is undefined", {Tensor()}, average({2}));
  check_refused("max_pool2d: dilation must be at least 1", {x}, largest({2}, {.dilation = {0}}));
  check_refused("more than half", {x}, largest({3}, {.padding = {2}, .dilation = {3}}));
  check_refused("reaches over 9 positions of spatial dim 1, the padded input has 6", {x},
                largest({3}, {.dilation = {1, 4}}));
  check_refused("no dim but the batch may be empty", {zeros_of({0, 3, 0, 6})}, largest({2}));
  CHECK(largest({2})({zeros_of({0, 3, 8, 6})}).sizes() == Dims{0, 3, 4, 3});
  const auto adaptive = [](const Dims& size) {
    return [=](const Tensors& t) { return adaptive_avg_pool2d(t[0], size); };
  };
  check_refused("adaptive_avg_pool2d: output_size must be at least 0", {x}, adaptive({-1}));
  check_refused("spatial dims must not be empty", {zeros_of({2, 3, 0, 6})}, adaptive({1}));
  check_refused("needs an input [N, C, 2 spatial dims]", {zeros_of({8, 6})}, adaptive({1}));
  CHECK(adaptive({kKeepSize, 2})({x}).sizes() == Dims{2, 3, 8, 2});
}

TEST_CASE("interpolate refuses what PyTorch refuses", "[ops]") {
  const Tensor x = zeros_of({2, 3, 8, 6});
  const auto with = [](const InterpolateOptions& o) {
    return [=](const Tensors& t) { return interpolate(t[0], o); };
  };
  using Mode = InterpolateMode;
  check_refused("exactly one of size and scale_factor", {x}, with({}));
  check_refused("exactly one of size and scale_factor", {x}, with({.size = {4}, .scale_factor = {2}}));
  check_refused("size needs one value or 2", {x}, with({.size = {4, 4, 4}}));
  check_refused("scale_factor needs one value or 2", {x}, with({.scale_factor = {2, 2, 2}}));
  check_refused("size must be at least 1", {x}, with({.size = {4, 0}}));
  check_refused("spatial dim 0 of size 8 would have 0 positions", {x}, with({.scale_factor = {0.1}}));
  check_refused("would have -8 positions", {x}, with({.scale_factor = {-1}}));
  check_refused("mode nearest has no align_corners", {x}, with({.size = {4}, .align_corners = false}));
  check_refused("mode linear needs an input [N, C, 1 spatial dims]", {x},
                with({.size = {4}, .mode = Mode::Linear}));
  check_refused("mode bicubic needs an input [N, C, 2 spatial dims]", {zeros_of({1, 2, 3})},
                with({.size = {4}, .mode = Mode::Bicubic}));
  check_refused("mode nearest needs an input [N, C, 1 to 3 spatial dims], given [2, 3]", {zeros_of({2, 3})},
                with({.size = {4}}));
  check_refused("no dim but the batch may be empty", {zeros_of({1, 2, 0, 4})}, with({.size = {4}}));
  check_refused("recompute_scale_factor needs a scale_factor", {x},
                with({.size = {4}, .recompute_scale_factor = true}));
  check_refused("needs a floating tensor", {zeros_of({1, 2, 4, 4}, DType::I64)}, with({.size = {4}}));
  CHECK(with({.scale_factor = {2, 0.5}})({x}).sizes() == Dims{2, 3, 16, 3});
}

namespace {

// Every operation with windows, on [N, C, H, W].
std::vector<std::function<Tensors(const Tensor&)>> window_functions() {
  using Mode = InterpolateMode;
  return {
      [](const Tensor& x) {
        const MaxPoolResult r = max_pool2d_with_indices(x, {3}, {.stride = {2}, .padding = {1}});
        return Tensors{r.values, r.indices};
      },
      [](const Tensor& x) { return Tensors{avg_pool2d(x, {3}, {.stride = {2}, .padding = {1}})}; },
      [](const Tensor& x) {
        return Tensors{adaptive_avg_pool2d(x, {2, 3})};
      },
      [](const Tensor& x) {
        return Tensors{interpolate(x, {.size = {9, 5}, .mode = Mode::Bicubic})};
      },
      [](const Tensor& x) { return Tensors{interpolate(x, {.scale_factor = {2}})}; },
      [](const Tensor& x) {
        return Tensors{interpolate(x, {.scale_factor = {1.7}, .mode = Mode::Bilinear})};
      },
      [](const Tensor& x) { return Tensors{avg_pool2d(x, {2})}; },
      [](const Tensor& x) {
        return Tensors{pad(x, {1, 2, 3, 0}, PadMode::Reflect)};
      },
      [](const Tensor& x) {
        return Tensors{pad(x, {1, 2, 3, 0}, PadMode::Replicate)};
      },
  };
}

// The same values with the channels innermost in memory, as convolutions leave them.
Tensor channels_innermost(const Tensor& x) {
  return Tensor(x.local().permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}));
}

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  const std::vector<double> p = a.to_vector();
  const std::vector<double> q = b.to_vector();
  double most = 0;
  for (std::size_t i = 0; i < p.size(); ++i) most = std::max(most, std::abs(p[i] - q[i]));
  return most;
}

Tensors with_gradient(const std::function<Tensors(const Tensor&)>& f, const Tensor& x) {
  Tensor leaf = x.detach();
  leaf.set_requires_grad();
  Tensors results = f(leaf);
  Generator random(5);
  results[0].backward(randn(results[0].sizes(), random, results[0].dtype()));
  results.push_back(leaf.grad());
  return results;
}

}  // namespace

TEST_CASE("operations with windows do not depend on how the map lies in memory", "[ops]") {
  auto random = test_random(91);
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
    for (const Dims& sizes : {Dims{2, 1, 7, 6}, Dims{2, 3, 7, 6}, Dims{2, 300, 7, 6}, Dims{2, 2, 9, 83}}) {
      Generator draws(random());
      const Tensor x = randn(sizes, draws, dtype);
      for (const auto& f : window_functions()) {
        const Tensors want = with_gradient(f, x);
        const Tensors got = with_gradient(f, channels_innermost(x));
        for (std::size_t i = 0; i < want.size(); ++i) CHECK(largest_difference(got[i], want[i]) < 1e-12);
      }
    }
}

TEST_CASE("operations with windows give the same on wide maps, however they are cut", "[ops]") {
  auto random = test_random(97);
  Generator draws(random());
  const Tensor x = randn({2, 2, 9, 150}, draws);
  for (const DeviceMesh& mesh : all_meshes())
    for (const auto& f : window_functions()) {
      const Tensors want = with_gradient(f, x);
      const Tensors got = with_gradient(f, redistribute(x, random_spec(random, mesh, x.sizes())));
      for (std::size_t i = 0; i < want.size(); ++i) CHECK(largest_difference(got[i], want[i]) <= 1e-5);
    }
}

TEST_CASE("convolution wraps the dims that are named and pads the others as told", "[ops]") {
  auto random = test_random(96);
  Generator draws(random());
  const Tensor x = randn({2, 3, 5, 6}, draws, DType::F64);
  const Tensor w = randn({2, 3, 3, 3}, draws, DType::F64);
  const Tensor b = randn({2}, draws, DType::F64);
  const Tensor wrapped = pad(x, {1, 1, 0, 0}, PadMode::Circular);
  for (const DeviceMesh& mesh : all_meshes())
    for (const PaddingMode mode : {PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate}) {
      const Tensor padded = mode == PaddingMode::Zeros     ? pad(wrapped, {0, 0, 2, 2})
                            : mode == PaddingMode::Reflect ? pad(wrapped, {0, 0, 2, 2}, PadMode::Reflect)
                                                           : pad(wrapped, {0, 0, 2, 2}, PadMode::Replicate);
      const Tensor want = conv2d(padded, w, b);
      const Tensor got =
          conv2d(anywhere(random, mesh, x), w, b, {.padding = {2, 1}, .padding_mode = mode, .periodic = {1}});
      CHECK(largest_difference(got, want) < 1e-12);
    }
  check_refused("periodic names spatial dims 0 to 1, given [2]", {x, w}, [](const Tensors& t) {
    return conv2d(t[0], t[1], Tensor(), {.padding = {1}, .periodic = {2}});
  });
}

TEST_CASE("operations with windows compute bf16 and f16 in float32 and round once", "[ops]") {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    Generator draws(7);
    const Tensor x = randn({2, 3, 7, 6}, draws, dtype);
    for (const auto& f : window_functions()) {
      const Tensor exact = f(to(x, DType::F32))[0];
      CHECK(largest_difference(f(x)[0], to(exact, dtype)) == 0);
    }
  }
}

TEST_CASE("what no window of a convolution reads gets no gradient", "[ops]") {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const std::int64_t stride : {2, 3, 4}) {
      Generator draws(9);
      { const Tensor before = full({1 << 16}, 1e4, dtype); }  // memory is not 0 by chance
      Tensor x = randn({1, 3, 4 * stride + 1, 11, 17}, draws, dtype);
      x.set_requires_grad();
      const Tensor w = randn({1, 3, stride, 3, 4}, draws, dtype);
      const Tensor y = conv3d(x, w, Tensor(), {.stride = {stride, 1, 1}, .padding = {0, 2, 0}});
      y.backward(randn(y.sizes(), draws, dtype));
      for (const double v : slice(x.grad(), 2, 4 * stride, 4 * stride + 1).to_vector()) REQUIRE(v == 0);
    }
}

TEST_CASE("a window of max_pool that misses the map gives minus infinity and no gradient", "[ops]") {
  Tensor x = tensor(std::vector<double>{1, 2, 3}, {1, 1, 3}, DType::F64);
  x.set_requires_grad();
  const MaxPoolResult r = max_pool1d_with_indices(x, {2}, {.stride = {1}, .padding = {1}, .dilation = {4}});
  CHECK(r.values.to_vector() == std::vector<double>{-std::numeric_limits<double>::infinity()});
  CHECK(r.indices.to_vector() == std::vector<double>{-1});
  r.values.backward(ones({1, 1, 1}, DType::F64));
  CHECK(x.grad().to_vector() == std::vector<double>{0, 0, 0});
}

TEST_CASE("windows that divide the cuts send nothing, backward neither", "[ops]") {
  auto random = test_random(92);
  for (const DeviceMesh& mesh : all_meshes()) {
    const int ranks = mesh.size(0);
    std::vector<std::int64_t> lengths = random_lengths(random, 6, ranks);
    for (std::int64_t& n : lengths) n *= 2;
    Placements placements(static_cast<std::size_t>(mesh.ndim()));
    placements[0] = Shard(2);
    std::vector<std::vector<std::int64_t>> cuts(placements.size());
    cuts[0] = lengths;
    Generator draws(3);
    Tensor x = redistribute(randn({2, 3, 12, 4}, draws),
                            ShardSpec::from_lengths(mesh, placements, {2, 3, 12, 4}, cuts))
                   .detach();
    x.set_requires_grad();
    Tensor w = randn({3, 2, 2, 2}, draws);
    w.set_requires_grad();
    const auto before = test_world().recorder().totals().bytes;
    const Tensor y = conv_transpose2d(interpolate(avg_pool2d(max_pool2d(x, {1}), {2}), {.scale_factor = {2}}),
                                      w, Tensor(), {.stride = {2}});
    y.backward(zeros_like(y));
    CHECK(test_world().recorder().totals().bytes == before);
  }
}

TEST_CASE("windows of one rank of 16 on the meta device: nothing computed, all counted", "[ops]") {
  const Communicator planned = recording_communicator(3, 16);
  const DeviceMesh mesh(planned, {{"domain", 16}});
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, {1, 4, 64, 32});
  Tensor x(Array::empty(spec->local_sizes(), DType::F32, Device::Meta), spec);
  x.set_requires_grad();
  const Tensor w(Array::empty({4, 2, 4, 4}, DType::F32, Device::Meta));
  const std::int64_t row = 4 * 32 * 4;  // bytes of one row of x
  const auto sent = [&](const std::function<Tensor()>& f, bool backward) {
    const Tensor y = f();
    const auto before = planned.recorder().totals().bytes;
    if (backward) {
      y.backward(zeros_like(y));
    } else {
      f();
    }
    return planned.recorder().totals().bytes - before;
  };
  const std::function<Tensor()> pool = [&] { return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}}); };
  CHECK(pool().sizes() == Dims{1, 4, 32, 16});
  CHECK(sent(pool, false) == row);  // one row below: windows reach back by one
  CHECK(sent(pool, true) == row);
  const std::function<Tensor()> resize = [&] {
    return interpolate(x, {.scale_factor = {2}, .mode = InterpolateMode::Bilinear});
  };
  CHECK(sent(resize, false) == 2 * row);
  CHECK(sent(resize, true) == 2 * row);
  const std::function<Tensor()> up = [&] {
    return conv_transpose2d(x, w, Tensor(), {.stride = {2}, .padding = {1}});
  };
  CHECK(up().sizes() == Dims{1, 2, 128, 64});
  CHECK(sent(up, false) == 2 * 2 * 64 * 4);  // a row of the output to each side
  CHECK(sent(up, true) == 2 * 2 * 64 * 4);
}

TEST_CASE("windows over plain tensors of a shape are planned once", "[ops]") {
  const auto first_of_each = [](const AxisMap& a, RowMap& map) {
    for (std::int64_t o = 0; o < a.outputs; ++o) {
      map.rows.add(o * a.window.stride, 1);
      map.end_row(o);
    }
  };
  const auto plan = [&](std::int64_t n, std::int64_t kernel, WindowUse use = WindowUse::Linear) {
    return plan_of({}, pool_axes({"pool", 1, {kernel}, {}, {0}}, {1, 1, n}, first_of_each), use);
  };
  const auto first = plan(8, 2);
  CHECK(plan(8, 2) == first);
  for (const auto& other : {plan(10, 2), plan(8, 4), plan(8, 2, WindowUse::Select)}) CHECK(other != first);
  CHECK(plan(8, 2) == first);
  // More shapes than are kept.
  for (std::int64_t n = 2; n < 300; n += 2) REQUIRE(plan(n, 2)->axes.front().rows.rows() == n / 2);
  const auto again = plan(8, 2)->axes.front().rows;
  CHECK(again.index == first->axes.front().rows.index);
  CHECK(again.index == std::vector<std::int64_t>{0, 2, 4, 6});
}
