// Dropout of attention's weights beside the composition written out: softmax, the generator's numbers asked
// for one by one, product with the values. On one rank and on every mesh.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/rng.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;
constexpr std::uint64_t kStream = 11;

struct Case {
  const char* what;
  Dims q, k, v;
  Dims mask;     // added; or empty
  Dims weights;  // of all dims
  bool is_causal = false;
  bool enable_gqa = false;
  double p = 0.4;
  std::int64_t batch_offset = 0;
};

std::int64_t size_at(const Dims& sizes, int dim) { return sizes[sizes.size() + dim]; }

AttentionOptions options_of(const Case& c, std::uint64_t seed) {
  AttentionOptions o;
  o.is_causal = c.is_causal;
  o.enable_gqa = c.enable_gqa;
  o.dropout_p = c.p;
  o.generator = std::make_shared<Generator>(seed);
  o.generator->set_stream(kStream);
  o.generator->set_batch_offset(c.batch_offset);
  return o;
}

// Whether each of the weights is kept, row-major.
std::vector<bool> kept(const Dims& weights, std::uint64_t seed, double p, std::int64_t batch_offset = 0) {
  const std::int64_t n = numel_of(weights);
  const std::int64_t first = n == 0 ? 0 : batch_offset * (n / weights[0]);
  std::vector<bool> list;
  for (std::int64_t i = 0; i < n; ++i) list.push_back(bernoulli_keep({seed, kStream}, first + i, p));
  return list;
}

Tensor composed(const Tensors& in, const Case& c, std::uint64_t seed) {
  const std::int64_t rows = size_at(c.q, -2);
  const std::int64_t keys = size_at(c.k, -2);
  const auto heads = [&](const Tensor& t) {
    return c.enable_gqa ? repeat_interleave(t, size_at(c.q, -3) / t.size(-3), t.dim() - 3) : t;
  };
  Tensor scores =
      matmul(in[0], transpose(heads(in[1]), -1, -2)) / std::sqrt(static_cast<double>(size_at(c.q, -1)));
  if (in.size() > 3) scores = scores + in[3];
  if (c.is_causal) {
    Values hidden;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < keys; ++j) hidden.push_back(j <= i ? 0.0 : -1e30);
    scores = scores + tensor(hidden, {rows, keys}, DType::F64);
  }
  Values share;
  for (const bool keep : kept(c.weights, seed, c.p, c.batch_offset))
    share.push_back(keep ? 1 / (1 - c.p) : 0.0);
  return matmul(softmax(scores, -1) * tensor(share, c.weights, DType::F64), heads(in[2]));
}

// The result, its gradients by the pass that is not recorded and by the one that is, and the gradients of the
// sum of squares of the latter.
template <class F>
std::vector<Values> everything(const F& f, const Tensors& given, const Tensor& cotangent) {
  Tensors in;
  for (const Tensor& t : given) in.push_back(t.detach().set_requires_grad());
  const Tensor y = f(in);
  std::vector<Values> all{y.to_vector()};
  for (const Tensor& g : grad({y}, in, {cotangent}, {.retain_graph = true})) all.push_back(g.to_vector());
  const Tensors recorded = grad({y}, in, {cotangent}, {.create_graph = true});
  Tensor squares;
  for (const Tensor& g : recorded) {
    all.push_back(g.to_vector());
    squares = squares.defined() ? squares + sum(square(g)) : sum(square(g));
  }
  for (const Tensor& g : grad({squares}, in)) all.push_back(g.to_vector());
  return all;
}

void check_close(const std::vector<Values>& got, const std::vector<Values>& want, std::size_t inputs) {
  REQUIRE(got.size() == want.size());
  const char* parts[] = {"gradient", "recorded gradient", "second gradient"};
  for (std::size_t n = 0; n < want.size(); ++n) {
    INFO((n == 0 ? "result" : parts[(n - 1) / inputs]) << " of input " << (n + inputs - 1) % inputs);
    REQUIRE(got[n].size() == want[n].size());
    double most = 1.0;
    double worst = 0.0;
    for (const double x : want[n]) most = std::max(most, std::abs(x));
    for (std::size_t i = 0; i < want[n].size(); ++i) {
      const double off = std::abs(got[n][i] - want[n][i]);
      worst = off <= worst ? worst : off;
    }
    CHECK(worst <= 1e-11 * most);
  }
}

std::vector<Case> cases() {
  const Dims s{2, 2, 5, 3};
  return {
      {"plain", s, s, {2, 2, 5, 4}, {}, {2, 2, 5, 5}},
      {"causal", {1, 2, 7, 3}, {1, 2, 7, 3}, {1, 2, 7, 2}, {}, {1, 2, 7, 7}, true},
      {"grouped", {2, 4, 3, 2}, {2, 2, 6, 2}, {2, 2, 6, 3}, {}, {2, 4, 3, 6}, false, true},
      {"added", {2, 2, 4, 3}, {2, 2, 6, 3}, {2, 2, 6, 3}, {4, 6}, {2, 2, 4, 6}},
      {"grouped, causal", {1, 4, 6, 2}, {1, 2, 6, 2}, {1, 2, 6, 2}, {}, {1, 4, 6, 6}, true, true},
      {"an added mask for each", {2, 2, 3, 2}, {2, 2, 7, 2}, {2, 2, 7, 2}, {2, 2, 3, 7}, {2, 2, 3, 7}},
      {"two dims", {6, 3}, {5, 3}, {5, 2}, {}, {6, 5}},
      {"three dims, broadcast", {3, 4, 2}, {1, 5, 2}, {3, 5, 2}, {}, {3, 4, 5}},
      {"five dims", {2, 3, 2, 4, 2}, {2, 3, 2, 5, 2}, {2, 3, 2, 5, 2}, {}, {2, 3, 2, 4, 5}},
      {"a part of a batch", s, s, s, {}, {2, 2, 5, 5}, false, false, 0.25, 3},
      {"nearly all", s, s, s, {}, {2, 2, 5, 5}, false, false, 0.9},
  };
}

struct Drawn {
  Tensors inputs;
  Tensor cotangent;
};
Drawn draw(const Case& c, std::uint64_t seed) {
  Generator random(seed);
  Drawn d;
  for (const Dims& sizes : {c.q, c.k, c.v, c.mask})
    if (!sizes.empty()) d.inputs.push_back(randn(sizes, random, DType::F64));
  Dims out = c.weights;
  out[out.size() - 1] = size_at(c.v, -1);
  d.cotangent = randn(out, random, DType::F64);
  return d;
}

auto fused(const Case& c, std::uint64_t seed) {
  return [&c, seed](const Tensors& t) {
    AttentionOptions o = options_of(c, seed);
    if (t.size() > 3) o.attn_mask = t[3];
    return scaled_dot_product_attention(t[0], t[1], t[2], o);
  };
}

}  // namespace

TEST_CASE("attention with dropout is softmax, dropout and product: result, gradients, second gradients",
          "[ops]") {
  Random random = test_random(310);
  for (const Case& c : cases()) {
    const std::uint64_t seed = random();
    const Drawn d = draw(c, seed);
    INFO(c.what);
    const std::vector<Values> want =
        everything([&](const Tensors& t) { return composed(t, c, seed); }, d.inputs, d.cotangent);
    check_close(everything(fused(c, seed), d.inputs, d.cotangent), want, d.inputs.size());
    for (const DeviceMesh& mesh : all_meshes())
      for (int trial = 0; trial < trials(2); ++trial) {
        Tensors placed;
        std::string text;
        for (const Tensor& t : d.inputs) {
          placed.push_back(redistribute(t, random_spec(random, mesh, t.sizes())));
          text += " " + placed.back().spec()->str();
        }
        INFO("on" << text);
        const Tensor cotangent = redistribute(d.cotangent, random_spec(random, mesh, d.cotangent.sizes()));
        check_close(everything(fused(c, seed), placed, cotangent), want, d.inputs.size());
      }
  }
}

namespace {

// Weights that are all equal, times the unit matrix: what is above 0 was kept.
struct Equal {
  Tensor q, k, v;
  Equal(const Dims& weights, DType dtype) {
    const std::int64_t keys = weights[3];
    q = zeros({weights[0], weights[1], weights[2], 8}, dtype);
    k = zeros({weights[0], weights[1], keys, 8}, dtype);
    Values unit(static_cast<std::size_t>(keys * keys), 0.0);
    for (std::int64_t j = 0; j < keys; ++j) unit[static_cast<std::size_t>(j * keys + j)] = 1.0;
    v = contiguous(expand(tensor(unit, {1, 1, keys, keys}, dtype), {weights[0], weights[1], keys, keys}));
  }
};

std::vector<bool> above_zero(const Tensor& y) {
  std::vector<bool> list;
  for (const double x : y.to_vector()) list.push_back(x > 0);
  return list;
}

}  // namespace

TEST_CASE("which weights of attention stay: the generator's bits at their place, in every ring", "[ops]") {
  Random random = test_random(311);
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16})
    for (const Dims& weights : {Dims{1, 2, 230, 150}, Dims{2, 1, 9, 261}, Dims{3, 2, 5, 7}}) {
      const std::uint64_t seed = random();
      const std::vector<bool> want = kept(weights, seed, 0.3);
      const Case c{"", {}, {}, {}, {}, weights, false, false, 0.3};
      const Equal e(weights, dtype);
      CHECK(above_zero(fused(c, seed)({e.q, e.k, e.v})) == want);
      const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
      for (int trial = 0; trial < 3; ++trial) {  // a ring, its shards uneven, empty and in pieces
        const DimCut rows = random_cut(random, {0}, weights[2], mesh.size(0));
        const DimCut keys = random_cut(random, {0}, weights[3], mesh.size(0));
        const auto cut = [&](const Tensor& t, const DimCut& length) {
          return redistribute(t, ShardSpec::make(mesh, {Shard(2)}, t.sizes(),
                                                 {std::nullopt, std::nullopt, length, std::nullopt}));
        };
        CHECK(above_zero(fused(c, seed)({cut(e.q, rows), cut(e.k, keys), cut(e.v, keys)})) == want);
      }
    }
}

TEST_CASE("dropout of attention takes one stream, none where nothing is dropped, and its batch offset",
          "[ops]") {
  Random random = test_random(312);
  const Dims sizes{4, 2, 5, 3};
  Generator values(random());
  const Tensor q = randn(sizes, values);
  const GeneratorPtr generator = std::make_shared<Generator>(random());
  const auto attend = [&](const Tensor& x, double p) {
    return scaled_dot_product_attention(x, x, x, {.dropout_p = p, .generator = generator}).to_vector();
  };
  CHECK(attend(q, 0.0) == scaled_dot_product_attention(q, q, q).to_vector());
  CHECK(generator->stream() == 0);
  const Values first = attend(q, 0.5);
  CHECK(generator->stream() == 1);
  CHECK(attend(q, 0.5) != first);
  CHECK(generator->stream() == 2);
  Values halves;
  for (const std::int64_t at : {0, 2}) {
    generator->set_stream(0);
    generator->set_batch_offset(at);
    const Values half = attend(narrow(q, 0, at, 2), 0.5);
    halves.insert(halves.end(), half.begin(), half.end());
  }
  CHECK(halves == first);
  generator->set_stream(0);
  generator->set_batch_offset(0);
  const Tensor leaf = q.detach().set_requires_grad();
  const Tensor nothing =
      scaled_dot_product_attention(leaf, leaf, leaf, {.dropout_p = 1.0, .generator = generator});
  CHECK(nothing.to_vector() == Values(q.to_vector().size(), 0.0));
  nothing.backward(ones(sizes));
  CHECK(sum(square(leaf.grad())).item() == 0.0);
}

TEST_CASE("attention that is refused draws nothing", "[ops]") {
  const GeneratorPtr generator = std::make_shared<Generator>(5);
  const Tensor q = ones({1, 2, 5, 4});
  const auto refused = [&](const Tensor& k, const AttentionOptions& o) {
    return refusal([&] { scaled_dot_product_attention(q, k, k, o); });
  };
  CHECK(contains(refused(ones({1, 3, 5, 4}), {.dropout_p = 0.5, .generator = generator}),
                 "do not go together"));
  CHECK(contains(refused(q, {.attn_mask = ones({9, 9}), .dropout_p = 0.5, .generator = generator}),
                 "mask [9, 9]"));
  CHECK(contains(refused(q, {.dropout_p = 1.5, .generator = generator}), "0 <= dropout_p <= 1"));
  CHECK(contains(refused(q, {.dropout_p = std::nan(""), .generator = generator}), "dropout_p nan given"));
  CHECK(contains(refused(q, {.dropout_p = 0.5}), "dropout_p 0.5 needs a generator"));
  CHECK(generator->stream() == 0);
}
