// Norms of maps that are larger than the caches.
#include <catch2/catch.hpp>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

TEST_CASE("large maps are normalised slab by slab, to the bits that every group has alone", "[ops][norms]") {
  constexpr std::int64_t kSamples = 2;
  constexpr std::int64_t kChannels = 24;
  Generator g(test_seed());
  const Tensor x = randn({kSamples, kChannels, 104, 101}, g);  // 1 MB a sample
  const Tensor weight = randn({kChannels}, g);
  const Tensor bias = randn({kChannels}, g);
  for (const std::int64_t groups : {2, 6, 24}) {
    GroupNormOptions options;
    if (groups == 6) options.activation = NormActivation::Gelu;
    const Tensor y = group_norm(x, groups, weight, bias, options);
    const std::int64_t together = kChannels / groups;
    for (std::int64_t n = 0; n < kSamples; ++n)
      for (std::int64_t c = 0; c < kChannels; c += together) {
        const auto own = [&](const Tensor& t, std::int64_t dim) { return slice(t, dim, c, c + together); };
        const auto map = [&](const Tensor& t) { return own(slice(t, 0, n, n + 1), 1); };
        const Tensor alone = group_norm(map(x), 1, own(weight, 0), own(bias, 0), options);
        CHECK(map(y).to_vector() == alone.to_vector());
      }
  }
}
