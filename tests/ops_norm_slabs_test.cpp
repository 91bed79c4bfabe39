// Norms of maps that are larger than the caches.
#include <catch2/catch.hpp>

#include <functional>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

constexpr std::int64_t kChannels = 24;

struct Layer {
  Tensor x, weight, bias, dy;
  std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)> norm;
};
struct Gradients {
  Tensor y, dx, dweight, dbias;
};

Gradients differentiated(const Layer& layer) {
  const auto leaf = [](const Tensor& t) {
    Tensor own = t.detach();
    own.set_requires_grad();
    return own;
  };
  const Tensors inputs{leaf(layer.x), leaf(layer.weight), leaf(layer.bias)};
  const Tensor y = layer.norm(inputs[0], inputs[1], inputs[2]);
  const Tensors g = grad({y}, inputs, {layer.dy});
  return {y, g[0], g[1], g[2]};
}

// The layer of `together` channels from `c` on of one sample.
Layer part(const Layer& whole, std::int64_t sample, std::int64_t c, std::int64_t together) {
  const auto own = [&](const Tensor& t, std::int64_t dim) { return slice(t, dim, c, c + together); };
  const auto map = [&](const Tensor& t) {
    return Tensor(own(slice(t, 0, sample, sample + 1), 1).local().clone());
  };
  return {map(whole.x), own(whole.weight, 0), own(whole.bias, 0), map(whole.dy), {}};
}

Layer random_layer(std::int64_t samples) {
  Generator g(test_seed());
  const Dims sizes{samples, kChannels, 104, 101};  // 1 MB a sample
  const Tensor x = randn(sizes, g);
  const Tensor weight = randn({kChannels}, g);
  const Tensor bias = randn({kChannels}, g);
  return {x, weight, bias, randn(sizes, g), {}};
}

// Every group of `together` channels of every sample, alone, against the whole.
void check_groups(const Layer& layer, std::int64_t together, const Layer& alone) {
  const std::int64_t samples = layer.x.size(0);
  const Gradients whole = differentiated(layer);
  for (std::int64_t c = 0; c < kChannels; c += together) {
    const auto own = [&](const Tensor& t, std::int64_t dim) { return slice(t, dim, c, c + together); };
    Tensor dweight;
    Tensor dbias;
    for (std::int64_t n = 0; n < samples; ++n) {
      Layer small = part(layer, n, c, together);
      small.norm = alone.norm;
      const Gradients g = differentiated(small);
      const auto map = [&](const Tensor& t) { return own(slice(t, 0, n, n + 1), 1); };
      CHECK(map(whole.y).to_vector() == g.y.to_vector());
      CHECK(map(whole.dx).to_vector() == g.dx.to_vector());
      dweight = n == 0 ? g.dweight : dweight + g.dweight;
      dbias = n == 0 ? g.dbias : dbias + g.dbias;
    }
    CHECK(norm(own(whole.dweight, 0) - dweight).item() <= 1e-5 * norm(dweight).item());
    CHECK(norm(own(whole.dbias, 0) - dbias).item() <= 1e-5 * norm(dbias).item() + 1e-4);
  }
}

}  // namespace

TEST_CASE("large maps are normalised slab by slab, to the bits that every group has alone", "[ops][norms]") {
  for (const std::int64_t groups : {2, 6, 24}) {
    GroupNormOptions options;
    if (groups == 6) options.activation = NormActivation::Gelu;
    const auto of = [options](std::int64_t count) {
      return [=](const Tensor& x, const Tensor& w, const Tensor& b) {
        return group_norm(x, count, w, b, options);
      };
    };
    Layer layer = random_layer(2);
    layer.norm = of(groups);
    check_groups(layer, kChannels / groups, {{}, {}, {}, {}, of(1)});
  }
}

TEST_CASE("one large sample is batch normalised slab by slab", "[ops][norms]") {
  Layer layer = random_layer(1);
  layer.norm = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return batch_norm(x, {}, w, b, {.training = true});
  };
  check_groups(layer, 1, layer);
}

TEST_CASE("several large samples are batch normalised slab by slab, to the bits that every channel has alone",
          "[ops][norms]") {
  Layer layer = random_layer(3);
  layer.norm = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return batch_norm(x, {}, w, b, {.training = true, .activation = NormActivation::Silu});
  };
  const Gradients whole = differentiated(layer);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    const auto own = [&](const Tensor& t, int dim) {
      return Tensor(slice(t, dim, c, c + 1).local().clone());
    };
    const Gradients g = differentiated(
        {own(layer.x, 1), own(layer.weight, 0), own(layer.bias, 0), own(layer.dy, 1), layer.norm});
    CHECK(own(whole.y, 1).to_vector() == g.y.to_vector());
    CHECK(own(whole.dx, 1).to_vector() == g.dx.to_vector());
    CHECK(own(whole.dweight, 0).to_vector() == g.dweight.to_vector());
    CHECK(own(whole.dbias, 0).to_vector() == g.dbias.to_vector());
  }
}

TEST_CASE("large maps of innermost channels are normalised sample by sample, to the bits of each alone",
          "[ops][norms]") {
  const auto innermost = [](const Tensor& t) {
    return Tensor(t.local().permute({0, 2, 3, 1}).clone().permute({0, 3, 1, 2}));
  };
  for (const std::int64_t groups : {2, 24})
    for (const auto activation : {NormActivation::None, NormActivation::Gelu}) {
      Layer layer = random_layer(3);
      layer.x = innermost(layer.x);
      layer.dy = innermost(layer.dy);
      layer.norm = [=](const Tensor& x, const Tensor& w, const Tensor& b) {
        return group_norm(x, groups, w, b, {.activation = activation});
      };
      const Gradients whole = differentiated(layer);
      Tensor dweight = zeros({kChannels});
      Tensor dbias = zeros({kChannels});
      for (std::int64_t n = 0; n < 3; ++n) {
        Layer one = layer;
        one.x = innermost(slice(layer.x, 0, n, n + 1));
        one.dy = innermost(slice(layer.dy, 0, n, n + 1));
        const Gradients g = differentiated(one);
        CHECK(slice(whole.y, 0, n, n + 1).to_vector() == g.y.to_vector());
        CHECK(slice(whole.dx, 0, n, n + 1).to_vector() == g.dx.to_vector());
        dweight = dweight + g.dweight;
        dbias = dbias + g.dbias;
      }
      CHECK(norm(whole.dweight - dweight).item() <= 1e-5 * norm(dweight).item());
      CHECK(norm(whole.dbias - dbias).item() <= 1e-5 * norm(dbias).item() + 1e-4);
    }
}
