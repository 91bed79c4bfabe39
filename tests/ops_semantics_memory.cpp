// Results lie in memory as their inputs do: a network of convolutions, which leave channels innermost, never
// turns its maps round.
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "ops/cpu/conv_choice.h"
#include "ops/ops.h"
#include "tests/frames_from.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Map = std::function<Tensor(const Tensor&)>;
struct NamedMap {
  const char* name;
  Map f;
};

// What networks of convolutions do to [2, 6, 8, 10] between these.
std::vector<NamedMap> maps_between_convolutions() {
  static Generator generator(3);
  return {
      {"group_norm", [](const Tensor& x) { return group_norm(x, 3); }},
      {"batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {.training = true}); }},
      {"instance_norm", [](const Tensor& x) { return instance_norm(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5, generator); }},
      {"avg_pool2d", [](const Tensor& x) { return avg_pool2d(x, {2}); }},
      {"max_pool2d", [](const Tensor& x) { return max_pool2d(x, {2}); }},
      {"interpolate", [](const Tensor& x) { return interpolate(x, {.scale_factor = {2.0}}); }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1});
       }},
      {"pad circular",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1}, PadMode::Circular);
       }},
      {"pad reflect",
       [](const Tensor& x) {
         return pad(x, {1, 2, 0, 1}, PadMode::Reflect);
       }},
      {"cat along channels",
       [](const Tensor& x) {
         return cat({x, x}, 1);
       }},
      {"cat along the batch",
       [](const Tensor& x) {
         return cat({x, x}, 0);
       }},
      {"part of the channels", [](const Tensor& x) { return slice(x, 1, 1, 4) * 2.0; }},
      {"part of the map", [](const Tensor& x) { return slice(x, 3, 2, 9, 2) * 2.0; }},
      {"split",
       [](const Tensor& x) {
         return split(x, {2, 4}, 1)[1] * 2.0;
       }},
      {"where", [](const Tensor& x) { return where(gt(x.detach(), zeros({}, x.dtype())), x, x * 0.1); }},
      {"bias",
       [](const Tensor& x) {
         return x + ones({1, 6, 1, 1}, x.dtype());
       }},
      {"mask",
       [](const Tensor& x) {
         return x * ones({8, 10}, x.dtype());
       }},
      {"another dtype and back", [](const Tensor& x) { return to(to(x, DType::F64), x.dtype()); }},
      {"flip", [](const Tensor& x) { return flip(x, {3}); }},
      {"roll", [](const Tensor& x) { return roll(x, {2}, {3}); }},
  };
}

// The dims [N, C, positions…] of a map from the outermost to the innermost where channels lie innermost, and
// the other way round.
Dims order_of_memory(int dims) {
  Dims order{0};
  for (int d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}
Dims order_of_dims(int dims) {
  Dims order{0, dims - 1};
  for (int d = 1; d < dims - 1; ++d) order.push_back(d);
  return order;
}
Array channels_last(const Array& a) {
  return a.permute(order_of_memory(a.dim())).clone().permute(order_of_dims(a.dim()));
}
// The same numbers as a slice of the channels of a wider map.
Array slice_of_channels(const Array& a) {
  Dims wide = a.sizes();
  wide[1] += 3;
  const Array all = channels_last(Array::full(wide, -7.0, a.dtype()));
  const Array part = all.slice(1, 2, a.size(1));
  part.copy_(a);
  return part;
}
// Possibly a view with gaps. A dim of size 1 may have any stride.
bool lies_channels_last(const Array& a) {
  std::int64_t reach = 1;
  const auto beyond = [&](int d) {
    if (a.size(d) == 1) return true;
    const bool fits = d == 1 ? a.stride(d) == 1 : a.stride(d) >= reach;
    reach = a.stride(d) * a.size(d);
    return fits;
  };
  bool lies = beyond(1);
  for (int d = a.dim() - 1; d >= 2; --d) lies = beyond(d) && lies;
  return beyond(0) && lies;
}

Tensor cut_as(const Tensor& like, const Tensor& t) {
  return like.is_sharded() ? t.redistribute(like.spec()) : t;
}
Tensor held_as(const Tensor& like, const Array& local) {
  return like.is_sharded() ? Tensor(local, like.spec()) : Tensor(local);
}

// Means, interpolation and largest values over [2, 6, 8, 10, 12], or its first dims.
std::vector<NamedMap> windows_of(int spatial) {
  using Mode = InterpolateMode;
  const auto at = [spatial](auto one, auto two, auto three) {
    return [=](const Tensor& x) { return spatial == 1 ? one(x) : spatial == 2 ? two(x) : three(x); };
  };
  const auto scaled = [](double factor, Mode mode) {
    return [=](const Tensor& x) { return interpolate(x, {.scale_factor = {factor}, .mode = mode}); };
  };
  std::vector<NamedMap> maps{
      {"avg_pool", at([](const Tensor& x) { return avg_pool1d(x, {2}); },
                      [](const Tensor& x) { return avg_pool2d(x, {2}); },
                      [](const Tensor& x) { return avg_pool3d(x, {2}); })},
      {"avg_pool that overlaps",
       at([](const Tensor& x) { return avg_pool1d(x, {3}, {.stride = {1}, .padding = {1}}); },
          [](const Tensor& x) { return avg_pool2d(x, {3}, {.stride = {1}, .padding = {1}}); },
          [](const Tensor& x) { return avg_pool3d(x, {3}, {.stride = {1}, .padding = {1}}); })},
      {"adaptive_avg_pool", at([](const Tensor& x) { return adaptive_avg_pool1d(x, {5}); },
                               [](const Tensor& x) { return adaptive_avg_pool2d(x, {5}); },
                               [](const Tensor& x) { return adaptive_avg_pool3d(x, {5}); })},
      {"max_pool", at([](const Tensor& x) { return max_pool1d(x, {2}); },
                      [](const Tensor& x) { return max_pool2d(x, {2}); },
                      [](const Tensor& x) { return max_pool3d(x, {2}); })},
      {"max_pool that overlaps",
       at([](const Tensor& x) { return max_pool1d(x, {3}, {.stride = {2}, .padding = {1}}); },
          [](const Tensor& x) { return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}}); },
          [](const Tensor& x) { return max_pool3d(x, {3}, {.stride = {2}, .padding = {1}}); })},
      {"nearest", scaled(2, Mode::Nearest)},
      {"area", scaled(0.5, Mode::Area)},
      {"linear", at(scaled(2, Mode::Linear), scaled(2, Mode::Bilinear), scaled(2, Mode::Trilinear))},
      {"linear that shrinks",
       at(scaled(0.5, Mode::Linear), scaled(0.5, Mode::Bilinear), scaled(0.5, Mode::Trilinear))},
  };
  if (spatial == 2) maps.push_back({"bicubic", scaled(2, Mode::Bicubic)});
  return maps;
}

// Of six channels.
std::vector<NamedMap> convolutions_over(int spatial, DType dtype, Generator& draws) {
  const auto kernel = [&](Dims channels, std::int64_t length) {
    for (int d = 0; d < spatial; ++d) channels.push_back(length);
    return randn(channels, draws, dtype);
  };
  const auto conv_as = [](const Tensor& w, const ConvOptions& options) {
    return [=](const Tensor& x) { return conv(x, w, {}, options); };
  };
  const auto transposed_as = [spatial](const Tensor& w, const ConvTransposeOptions& options) {
    const auto call = spatial == 1 ? &conv_transpose1d : spatial == 2 ? &conv_transpose2d : &conv_transpose3d;
    return [=](const Tensor& x) { return call(x, w, {}, options); };
  };
  return {
      {"conv", conv_as(kernel({5, 6}, 3), {.padding = {1}})},
      {"conv, gelu", conv_as(kernel({5, 6}, 3), {.padding = {1}, .activation = Activation::Gelu})},
      {"conv of single positions", conv_as(kernel({5, 6}, 1), {})},
      {"conv that strides", conv_as(kernel({5, 6}, 3), {.stride = {2}, .padding = {1}})},
      {"conv around the map", conv_as(kernel({5, 6}, 3), {.padding = {1}, .periodic = {spatial - 1}})},
      {"conv of dilated windows", conv_as(kernel({5, 6}, 3), {.padding = {2}, .dilation = {2}})},
      {"depthwise conv", conv_as(kernel({6, 1}, 3), {.padding = {1}, .groups = 6})},
      {"conv_transpose", transposed_as(kernel({6, 5}, 3), {.padding = {1}})},
      {"conv_transpose that strides", transposed_as(kernel({6, 5}, 2), {.stride = {2}})},
  };
}

// Result and gradient of x, which lies channels last, for gradients of the result in any order.
void check_lies_channels_last(const NamedMap& map, const Tensor& x, Generator& draws) {
  const Tensor y = map.f(x);
  CHECK(lies_channels_last(y.local()));
  const Array own = cut_as(y, randn(y.sizes(), draws, y.dtype())).local();
  for (const Array& given : {own.contiguous(), channels_last(own), slice_of_channels(own)}) {
    const Tensor dx = grad({y}, {x}, {held_as(y, given)}, {.retain_graph = true})[0];
    CHECK(lies_channels_last(dx.local()));
  }
}

}  // namespace

TEST_CASE("convolutions leave channels innermost, forward and backward, whichever way they go", "[ops]") {
  Random random = test_random(79);
  Generator draws(random());
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  const cpu::ConvChoice before = cpu::conv_choice();
  using Choice = cpu::ConvChoice;
  for (int spatial = 1; spatial <= 3; ++spatial)
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16})
      for (const NamedMap& map : convolutions_over(spatial, dtype, draws))
        for (const Choice choice : {Choice::ChannelsLast, Choice::Any, Choice::Own})
          for (const int cut : {-1, 2, spatial + 1}) {
            cpu::set_conv_choice(choice);
            const FramesFrom frames(chance(random, 50) ? 0 : 1 << 20);
            INFO(map.name << " over " << spatial << " dims of " << name_of(dtype) << ", cut " << cut
                          << ", way " << static_cast<int>(choice) << ", frames from " << frames_from());
            const Dims all{2, 6, 8, 10, 12};
            const Dims sizes(all.span().first(static_cast<std::size_t>(2 + spatial)));
            const Tensor whole = randn(sizes, draws, dtype);
            const Tensor values =
                cut < 0 ? whole : whole.redistribute(ShardSpec::make(mesh, {Shard(cut)}, sizes));
            for (const auto& lay : {&channels_last, &slice_of_channels})
              check_lies_channels_last(map, held_as(values, lay(values.local())).set_requires_grad(), draws);
          }
  cpu::set_conv_choice(before);
}

TEST_CASE("maps whose channels lie innermost stay so, forward and backward", "[ops]") {
  const SpecPtr spec =
      ShardSpec::make(mesh_over(test_world(), {test_world().size()}), {Shard(2)}, {2, 6, 8, 10});
  Generator draws(test_random(75)());
  for (const NamedMap& map : maps_between_convolutions())
    for (const bool sharded : {false, true}) {
      INFO(map.name << (sharded ? " sharded" : ""));
      const Tensor values = rand({2, 6, 8, 10}, draws, DType::F32);
      Tensor x = sharded ? Tensor(channels_last(values.redistribute(spec).local()), spec)
                         : Tensor(channels_last(values.local()));
      x.set_requires_grad();
      const Tensor y = map.f(x);
      CHECK(lies_channels_last(y.local()));
      const Array ones_like_y = Array::full(y.local().sizes(), 1.0, DType::F32);
      const Tensor dx = grad({y}, {x}, {held_as(y, channels_last(ones_like_y))})[0];
      CHECK(lies_channels_last(dx.local()));
    }
}

TEST_CASE("windows keep the order of slices of channels, and give the map's order to any gradient", "[ops]") {
  Random random = test_random(77);
  Generator draws(random());
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  for (int spatial = 1; spatial <= 3; ++spatial)
    for (const NamedMap& map : windows_of(spatial))
      for (const DType dtype : {DType::F32, DType::BF16})
        for (const int cut : {-1, 2, spatial + 1}) {
          const FramesFrom parts(chance(random, 50) ? 0 : 1 << 20);
          INFO(map.name << " over " << spatial << " dims of " << name_of(dtype) << ", cut " << cut);
          const Dims all{2, 6, 8, 10, 12};
          const Dims sizes(all.span().first(static_cast<std::size_t>(2 + spatial)));
          const Tensor whole = randn(sizes, draws, dtype);
          const Tensor values =
              cut < 0 ? whole : whole.redistribute(ShardSpec::make(mesh, {Shard(cut)}, sizes));
          Tensor plain = held_as(values, values.local().contiguous()).set_requires_grad();
          const Tensor wanted = map.f(plain);
          const Tensor dy = cut_as(wanted, randn(wanted.sizes(), draws, dtype));
          const Tensor wanted_dx = grad({wanted}, {plain}, {dy})[0];
          for (const auto& lay : {&channels_last, &slice_of_channels}) {
            const Tensor x = held_as(values, lay(values.local())).set_requires_grad();
            const Tensor y = map.f(x);
            CHECK(lies_channels_last(y.local()));
            CHECK(y.to_vector() == wanted.to_vector());
            const Array own = dy.local();
            for (const Array& given : {own.contiguous(), channels_last(own), slice_of_channels(own)}) {
              const Tensor dx = grad({y}, {x}, {held_as(y, given)}, {.retain_graph = true})[0];
              CHECK(lies_channels_last(dx.local()));
              CHECK(dx.to_vector() == wanted_dx.to_vector());
            }
          }
        }
}

TEST_CASE("the gradient of an element-wise function lies as its input", "[ops]") {
  const std::vector<NamedMap> maps{
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu, tanh", [](const Tensor& x) { return gelu(x, GeluKind::Tanh); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"abs", [](const Tensor& x) { return abs(x); }},
      {"elu", [](const Tensor& x) { return elu(x); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.5); }},
      {"pow", [](const Tensor& x) { return pow(x, 3.0); }},
  };
  Generator draws(test_random(78)());
  for (const NamedMap& map : maps)
    for (const Dims& sizes : {Dims{2, 6, 8}, Dims{2, 6, 8, 10}}) {
      INFO(map.name << " of " << sizes.str());
      const Array values = randn(sizes, draws, DType::F32).local();
      const Array dy = randn(sizes, draws, DType::F32).local();
      const auto gradient = [&](const Array& x_local, const Array& dy_local) {
        const Tensor x = Tensor(x_local).set_requires_grad();
        return grad({map.f(x)}, {x}, {Tensor(dy_local)})[0];
      };
      const std::vector<double> wanted = gradient(values, dy).to_vector();
      for (const Array& x : {channels_last(values), slice_of_channels(values)})
        for (const Array& given : {dy, channels_last(dy), slice_of_channels(dy)}) {
          const Tensor dx = gradient(x, given);
          CHECK(lies_channels_last(dx.local()));
          CHECK(dx.to_vector() == wanted);
        }
      CHECK(gradient(values, channels_last(dy)).local().is_contiguous());
    }
}

TEST_CASE("losses of classes that lie innermost are those of row-major memory", "[ops][losses]") {
  Random random = test_random(76);
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  Generator draws(random());
  using Lay = Array (*)(const Array&);
  const std::array<Lay, 3> lays{[](const Array& a) { return a.contiguous(); }, &channels_last,
                                &slice_of_channels};
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    for (const std::int64_t classes : {2, 3, 4, 15, 16, 61})
      for (int trial = 0; trial < 6; ++trial) {
        const Dims sizes{2, classes, chance(random, 20) ? 700 : 5, 6};
        const Tensor values = randn(sizes, draws, dtype);
        const Tensor target = to(rand({2, sizes[2], 6}, draws) * static_cast<double>(classes), DType::I64);
        const Tensor weight = rand({classes}, draws, dtype);
        const SpecPtr spec = trial == 0 ? nullptr : random_spec(random, mesh, sizes);
        const bool logits = chance(random, 70);
        INFO(classes << " classes of " << name_of(dtype) << ", " << (spec ? spec->str() : "plain")
                     << (logits ? ", logits" : ""));
        const ClassLossOptions options{.reduction = chance(random, 50) ? Reduction::Mean : Reduction::Sum,
                                       .label_smoothing = logits && chance(random, 50) ? 0.1 : 0.0};
        std::vector<std::vector<double>> results;
        for (const Lay lay : lays) {
          const Array held = lay(spec ? values.redistribute(spec).local() : values.local());
          const Tensor x = (spec ? Tensor(held, spec) : Tensor(held)).set_requires_grad();
          const Tensor loss =
              logits ? cross_entropy(x, target, weight, options) : nll_loss(x, target, weight, options);
          const Tensor dx = grad({loss}, {x})[0];
          if (results.empty()) CHECK(dx.local().is_contiguous());
          if (!results.empty() && !channels_last(held).is_contiguous()) CHECK(lies_channels_last(dx.local()));
          results.push_back(dx.to_vector());
          results.back().push_back(loss.item());
        }
        // Long rows that lie side by side are summed in another order.
        const double tolerance = classes < 16          ? 0
                                 : dtype == DType::F64 ? 1e-13
                                 : dtype == DType::F32 ? 1e-5
                                                       : 1e-2;
        double worst = 0;
        for (std::size_t k = 1; k < results.size(); ++k)
          for (std::size_t i = 0; i < results[0].size(); ++i)
            worst = std::max(worst, std::abs(results[k][i] - results[0][i]) / (1 + std::abs(results[0][i])));
        CHECK(worst <= tolerance);
      }
}
