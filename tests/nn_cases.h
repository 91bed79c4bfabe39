// What the tests of models and training share: meshes of every shape for this number of ranks, random cuts,
// random values, comparisons. All of it is the same on every rank.
#pragma once
#include <catch2/catch.hpp>

#include "nn/module.h"
#include "ops/elementwise/elementwise.h"
#include "runtime/error.h"
#include "tests/support/world.h"

namespace tessera {

// `parts` lengths that sum to n, zeros among them.
inline std::vector<std::int64_t> random_lengths(std::mt19937_64& random, std::int64_t n, int parts) {
  std::vector<std::int64_t> cuts{0, n};
  for (int i = 1; i < parts; ++i) cuts.push_back(random_int(random, 0, n));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 1; i < cuts.size(); ++i) lengths.push_back(cuts[i] - cuts[i - 1]);
  return lengths;
}

// One or two domain axes over all ranks.
inline std::vector<DeviceMesh> domain_meshes() {
  const int ranks = test_world().size();
  std::vector<DeviceMesh> meshes{DeviceMesh(test_world(), {{"domain", ranks}})};
  if (ranks == 4) meshes.emplace_back(test_world(), std::vector<MeshAxis>{{"lat", 2}, {"lon", 2}});
  return meshes;
}

// A spec that shards `dims[a]` over mesh axis a (several axes may cut one dim), cut at random.
inline SpecPtr random_spec(std::mt19937_64& random, const DeviceMesh& mesh, const Dims& sizes,
                           const std::vector<int>& dims) {
  Placements placements;
  std::vector<std::vector<int>> axes(static_cast<std::size_t>(sizes.size()));
  for (int a = 0; a < mesh.ndim(); ++a) {
    const int dim = dims[static_cast<std::size_t>(a) % dims.size()];
    placements.push_back(Shard(dim));
    axes[static_cast<std::size_t>(dim)].push_back(a);
  }
  std::vector<std::optional<DimCut>> cuts(axes.size());
  for (int d = 0; d < sizes.size(); ++d) {
    const std::vector<int>& of_dim = axes[static_cast<std::size_t>(d)];
    int parts = 1;
    for (int a : of_dim) parts *= mesh.size(a);
    if (!of_dim.empty())
      cuts[static_cast<std::size_t>(d)] = cut_from_lengths(of_dim, random_lengths(random, sizes[d], parts));
  }
  return ShardSpec::make(mesh, placements, sizes, cuts);
}

inline Tensor random_tensor(std::mt19937_64& random, const Dims& sizes, DType dtype = DType::F64) {
  Generator generator(random());
  return randn(sizes, generator, dtype);
}

// Where the test runs (TESSERA_TEST_DEVICE).
inline Tensor here(const Tensor& t) { return to(t, test_device()); }

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

// Largest difference, relative to the largest expected value. Collective if `got` is sharded.
inline double error_of(const Tensor& got, const Tensor& expected) {
  if (!got.defined() || !expected.defined()) return got.defined() == expected.defined() ? 0.0 : 1e300;
  if (got.sizes() != expected.sizes()) return 1e300;
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = expected.to_vector();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    worst = difference <= worst ? worst : std::isnan(difference) ? 1e300 : difference;
  }
  return worst / std::max(largest(b), 1e-30);
}

// Every parameter's gradient against that of the same model run on one rank; collective.
inline void check_gradients(const nn::Module& got, const nn::Module& expected, double tolerance) {
  // Gradients that are zero in exact arithmetic (the keys' bias in attention) are judged by the others' size.
  double scale = 0;
  for (const nn::NamedTensor& n : expected.named_parameters())
    if (n.tensor.grad().defined()) scale = std::max(scale, largest(n.tensor.grad().to_vector()));
  for (const nn::NamedTensor& n : expected.named_parameters()) {
    INFO("gradient of " << n.name);
    const Tensor a = got.parameter(n.name).grad();
    const Tensor b = n.tensor.grad();
    REQUIRE(a.defined() == b.defined());
    if (!a.defined()) continue;
    const double own = std::max(largest(b.to_vector()), 1e-30);
    CHECK(error_of(a, b) * own <= tolerance * std::max(own, 1e-3 * scale));
  }
}

// The text of the error that `f` throws, or "".
inline std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

// True if every rank has the same text; collective.
inline bool same_everywhere(const std::string& text) {
  for (const std::string& theirs : test_world().all_gather_bytes(text))
    if (theirs != text) return false;
  return true;
}

}  // namespace tessera
