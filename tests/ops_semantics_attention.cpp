// Attention beside a naive loop: leading dims of any number, some of them broadcast.
#include <catch2/catch.hpp>

#include <cmath>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;

struct Case {
  Dims q, k, v, mask, out;
};

// The values of q, k, v and an added mask, row-major.
struct Inputs {
  const Case& c;
  std::array<Dims, 4> sizes;
  std::array<Values, 4> values = {};

  Inputs(Random& random, const Case& of) : c(of), sizes{of.q, of.k, of.v, of.mask} {
    for (std::size_t t = 0; t < 4; ++t)
      for (std::int64_t i = 0; i < numel_of(sizes[t]); ++i)
        values[t].push_back(static_cast<double>(random_int(random, -20, 20)) / 10.0);
  }
  // Element (row, column) of the matrix of input t that belongs to matrix b of the result.
  double at(std::size_t t, std::int64_t b, std::int64_t row, std::int64_t column) const {
    const Dims& own = sizes[t];
    const int dims = own.size();
    std::int64_t place = 0;
    std::int64_t stride = own[dims - 1] * own[dims - 2];
    for (int d = 3; d <= c.out.size(); ++d) {
      const std::int64_t n = c.out[c.out.size() - d];
      if (d <= dims) {
        if (own[dims - d] != 1) place += b % n * stride;
        stride *= own[dims - d];
      }
      b /= n;
    }
    const std::int64_t r = own[dims - 2] == 1 ? 0 : row;
    return values[t][static_cast<std::size_t>(place + r * own[dims - 1] + column)];
  }
};

Values naive(const Inputs& in) {
  const std::int64_t rows = in.c.q[in.c.q.size() - 2];
  const std::int64_t depth = in.c.q[in.c.q.size() - 1];
  const std::int64_t keys = in.c.k[in.c.k.size() - 2];
  const std::int64_t width = in.c.v[in.c.v.size() - 1];
  Values out;
  for (std::int64_t b = 0; b < numel_of(in.c.out) / (rows * width); ++b)
    for (std::int64_t i = 0; i < rows; ++i) {
      Values sums(static_cast<std::size_t>(width), 0.0);
      double total = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < depth; ++d) score += in.at(0, b, i, d) * in.at(1, b, j, d);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(depth)) + in.at(3, b, i, j));
        total += weight;
        for (std::int64_t e = 0; e < width; ++e)
          sums[static_cast<std::size_t>(e)] += weight * in.at(2, b, j, e);
      }
      for (const double s : sums) out.push_back(s / total);
    }
  return out;
}

}  // namespace

TEST_CASE("attention of two to five dims is attention of every batch and head by itself", "[ops]") {
  auto random = test_random(104);
  const std::vector<Case> cases{
      {{3, 2}, {4, 2}, {4, 3}, {3, 4}, {3, 3}},
      {{2, 3, 2}, {1, 4, 2}, {2, 4, 3}, {2, 1, 4}, {2, 3, 3}},
      {{2, 3, 3, 2}, {1, 3, 4, 2}, {1, 1, 4, 3}, {2, 1, 1, 4}, {2, 3, 3, 3}},
      {{3, 2}, {2, 2, 4, 2}, {2, 1, 4, 1}, {3, 4}, {2, 2, 3, 1}},
      {{2, 1, 2, 3, 2}, {3, 2, 4, 2}, {2, 3, 1, 4, 2}, {2, 1, 1, 3, 4}, {2, 3, 2, 3, 2}}};
  for (const Case& c : cases) {
    const Inputs inputs(random, c);
    const Values want = naive(inputs);
    for (const DeviceMesh& mesh : all_meshes()) {
      Tensors in;
      for (std::size_t t = 0; t < 4; ++t)
        in.push_back(redistribute(tensor(inputs.values[t], inputs.sizes[t], DType::F64),
                                  random_spec(random, mesh, inputs.sizes[t])));
      INFO(c.q.str() << " on " << in[0].spec()->str());
      const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = in[3]});
      CHECK(y.sizes() == c.out);
      const Values got = y.to_vector();
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-10));
    }
  }
}

TEST_CASE("grouped heads in three dims", "[ops]") {
  Generator random(test_seed());
  const Tensor q = randn({4, 3, 2}, random, DType::F64);
  const Tensor k = randn({2, 5, 2}, random, DType::F64);
  const Tensor v = randn({2, 5, 3}, random, DType::F64);
  const Tensor got = scaled_dot_product_attention(q, k, v, {.enable_gqa = true});
  const Tensor want = scaled_dot_product_attention(q, repeat_interleave(k, 2, 0), repeat_interleave(v, 2, 0));
  CHECK(got.sizes() == Dims{4, 3, 3});
  CHECK(got.to_vector() == want.to_vector());
}
