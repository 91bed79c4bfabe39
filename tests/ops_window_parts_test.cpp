// Pools, interpolation and padding without a copy of the map with its halo: the same numbers as on one rank,
// the same messages as with a copy, and no room for one.
#include "ops/memory_order.h"
#include "ops/window/window_buffer.h"
#include "runtime/allocator.h"
#include "runtime/copy.h"
#include "tests/reports_cases.h"

using namespace tessera;
using namespace tessera::reports;

namespace {

using Run = Tensor (*)(const Tensor&);
struct Named {
  const char* what;
  Run run;
};

// Of maps of two spatial dims.
constexpr Named kMaps[] = {
    {"bilinear",
     [](const Tensor& x) {
       return interpolate(x, {.scale_factor = {2.0, 1.5}, .mode = InterpolateMode::Bilinear});
     }},
    {"bicubic, smaller",
     [](const Tensor& x) {
       return interpolate(x, {.size = {7, 5}, .mode = InterpolateMode::Bicubic});
     }},
    {"bicubic, larger",
     [](const Tensor& x) {
       return interpolate(x, {.scale_factor = {3.0}, .mode = InterpolateMode::Bicubic});
     }},
    {"aligned corners",
     [](const Tensor& x) {
       return interpolate(x, {.size = {17, 23}, .mode = InterpolateMode::Bilinear, .align_corners = true});
     }},
    {"avg_pool2d",
     [](const Tensor& x) {
       return avg_pool2d(x, {3, 4}, {.stride = {1, 2}, .padding = {1, 2}});
     }},
    {"avg_pool2d, wide",
     [](const Tensor& x) {
       return avg_pool2d(x, {7, 1}, {.stride = {1}, .padding = {3, 0}});
     }},
    {"max_pool2d",
     [](const Tensor& x) {
       return max_pool2d(x, {3, 3}, {.stride = {2}, .padding = {1}});
     }},
    {"max_pool2d, dilated",
     [](const Tensor& x) {
       return max_pool2d(x, {3, 2},
                         {.stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}, .ceil_mode = true});
     }},
    {"max_pool2d, wide",
     [](const Tensor& x) {
       return max_pool2d(x, {9, 3}, {.stride = {1}, .padding = {4, 1}});
     }},
    {"replicated",
     [](const Tensor& x) {
       return pad(x, {2, 1, 3, 2}, PadMode::Replicate);
     }},
    {"reflected",
     [](const Tensor& x) {
       return pad(x, {2, 1, 3, 2}, PadMode::Reflect);
     }},
};

Row row_of(const Named& map, bool channels_innermost) {
  return {map.what, [=](const Tensors& in) {
            if (!channels_innermost) return map.run(in[0]);
            // A view as a convolution would have left it, through which gradients go.
            return map.run(permute(contiguous(permute(in[0], {0, 2, 3, 1})), {0, 3, 1, 2}));
          }};
}

Tensor cut_map(const Dims& sizes, DType dtype) {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  Generator generator(11);
  const Tensor t = randn(sizes, generator, dtype, ShardSpec::make(mesh, {Shard(2)}, sizes));
  const Array local = empty_in_order(message_order(sizes.size()), t.local().sizes(), dtype, Device::Cpu);
  copy_strided(local, t.local());
  return Tensor(local, t.spec()).set_requires_grad();
}

struct Passes {
  std::int64_t forward = 0, backward = 0;                   // most bytes live at once, beyond those before
  std::vector<std::pair<std::int64_t, std::int64_t>> sent;  // messages and bytes of both passes
};
Passes passes(const Named& map, const Tensor& x, std::int64_t from) {
  const FramesFrom frames(from);
  const Tensor dy = map.run(x).detach();
  grad({map.run(x)}, {x}, {dy});  // plans are made
  Passes taken;
  const auto measured = [&](const std::function<void()>& f) {
    const Recorder::Totals before = test_world().recorder().totals();
    const std::int64_t live = allocator_stats(Device::Cpu).live_bytes;
    reset_peak(Device::Cpu);
    f();
    const Recorder::Totals after = test_world().recorder().totals();
    taken.sent.emplace_back(after.messages - before.messages, after.bytes - before.bytes);
    return allocator_stats(Device::Cpu).peak_live_bytes - live;
  };
  Tensor y;
  taken.forward = measured([&] { y = map.run(x); });
  taken.backward = measured([&] { grad({y}, {x}, {dy}); });
  return taken;
}

}  // namespace

TEST_CASE("windows part by part, cut in every way", "[ops]") {
  const FramesFrom all(0);
  auto random = test_random(150);
  for (const Named& map : kMaps)
    for (const bool channels_innermost : {false, true}) {
      const Dims sizes{random_int(random, 1, 2), 3, random_int(random, 9, 14), random_int(random, 9, 14)};
      check_row(random, row_of(map, channels_innermost), weight(sizes));
      check_row(random, row_of(map, channels_innermost), weight(sizes, DType::F32), 2e-3);
    }
}

TEST_CASE("ranks may decide differently between parts and a copy", "[ops]") {
  const FramesFrom mine(test_world().rank() % 2 == 0 ? 0 : INT64_MAX);
  auto random = test_random(151);
  for (const Named& map : kMaps) check_row(random, row_of(map, chance(random, 50)), weight({2, 3, 11, 12}));
}

TEST_CASE("values that are not finite pass through parts", "[ops]") {
  const FramesFrom all(0);
  auto random = test_random(152);
  for (const Named& map : kMaps)
    for (const double value : kNotFinite) {
      Values v = weight({1, 2, 12, 10}).to_vector();
      v[static_cast<std::size_t>(random_int(random, 0, 239))] = value;
      check_row(random, row_of(map, true), tensor(v, {1, 2, 12, 10}, DType::F64));
    }
}

TEST_CASE("no copy of a pool's input, and the same messages", "[ops]") {
  if (test_world().size() == 1) return;
  for (const Named& map : {kMaps[0], kMaps[4], kMaps[6]}) {
    INFO(map.what);
    const Tensor x = cut_map({1, 16, 128, 128}, DType::F32);
    const std::int64_t bytes = x.local().nbytes();
    const Passes parts = passes(map, x, 0);
    const Passes copied = passes(map, x, INT64_MAX);
    CHECK(parts.forward <= copied.forward - bytes * 3 / 4);
    CHECK(parts.backward <= bytes * 3 / 2);  // its own gradient, and edges
    CHECK(parts.sent == copied.sent);
  }
}
