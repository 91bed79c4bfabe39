// Norms in their corners: digits of data far from zero, empty shares, running statistics, messages, refusals.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "comm/virtual.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

DeviceMesh domain() { return DeviceMesh(test_world(), {{"domain", test_world().size()}}); }

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::abs(a[i] - b[i]) <= most ? most : std::abs(a[i] - b[i]);
  return most;
}

using Norm = std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b)>;

std::vector<std::pair<const char*, Norm>> norms() {
  return {{"group_norm",
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 3, w, b); }},
          {"batch_norm", [](const Tensor& x, const Tensor& w,
                            const Tensor& b) { return batch_norm(x, {}, w, b, {.training = true}); }},
          {"instance_norm",
           [](const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, {}, w, b); }},
          {"layer_norm", [](const Tensor& x, const Tensor& w, const Tensor& b) {
             return permute(layer_norm(permute(x, {0, 2, 3, 1}), w.sizes(), w, b), {0, 3, 1, 2});
           }}};
}

struct Run {
  std::vector<double> y, dx, dw, db;
};
Run run(const Norm& norm, Tensor x, Tensor w, Tensor b, const Tensor& cotangent) {
  x.set_requires_grad();
  w.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = norm(x, w, b);
  y.backward(cotangent);
  return {y.to_vector(), x.grad().to_vector(), w.grad().to_vector(), b.grad().to_vector()};
}

}  // namespace

TEST_CASE("float32 data with mean 10000 and deviation 1 keep their digits under every cut", "[ops][norms]") {
  auto random = test_random(90);
  const Dims sizes{3, 6, 5, 4};
  Generator g(random());
  const Tensor far = to(randn(sizes, g, DType::F64) + 1e4, DType::F32);
  const Tensor w = rand({6}, g) + 0.5;
  const Tensor b = randn({6}, g);
  const Tensor cotangent = randn(sizes, g);
  for (const auto& [name, norm] : norms()) {
    const auto wide = [](const Tensor& t) { return to(t, DType::F64).detach(); };
    const Run want = run(norm, wide(far), wide(w), wide(b), wide(cotangent));
    for (const DeviceMesh& mesh : all_meshes())
      for (int trial = 0; trial < 6; ++trial) {
        const SpecPtr spec = random_spec(random, mesh, sizes, {.replicate_percent = 10});
        const SpecPtr from = random_spec(random, mesh, sizes, {.replicate_percent = 10});
        INFO(name << " " << spec->str() << ", gradients " << from->str());
        const Run got = run(norm, redistribute(far, spec).detach(), w.detach(), b.detach(),
                            redistribute(cotangent, from));
        CHECK(worst(got.y, want.y) < 4e-6);
        CHECK(worst(got.dx, want.dx) < 6e-6);
        CHECK(worst(got.dw, want.dw) < 4e-5);
        CHECK(worst(got.db, want.db) < 2e-5);
      }
  }
}

TEST_CASE("second derivatives of float32 data far from zero keep their digits too", "[ops][norms]") {
  auto random = test_random(91);
  const Dims sizes{2, 3, 4, 5};
  Generator g(random());
  const Tensor far = to(randn(sizes, g, DType::F64) + 1e4, DType::F32);
  const Tensor cotangent = randn(sizes, g);
  const Tensor direction = randn(sizes, g);
  for (const auto& [name, norm] : norms()) {
    const auto second = [&](const Tensor& x_given, DType dtype) {
      Tensor x = x_given.detach().set_requires_grad();
      const Tensor w = ones({3}, dtype);
      const Tensor first =
          grad({norm(x, w, Tensor())}, {x}, {to(cotangent, dtype)}, {.create_graph = true})[0];
      return grad({first}, {x}, {to(direction, dtype)})[0].to_vector();
    };
    INFO(name);
    const std::vector<double> want = second(to(far, DType::F64), DType::F64);
    const double largest = worst(want, std::vector<double>(want.size(), 0.0));
    CHECK(worst(second(redistribute(far, random_spec(random, domain(), sizes)), DType::F32), want) <
          1e-5 * (10.0 + largest));
  }
}

TEST_CASE("running statistics: a batch of nothing changes nothing and gives gradients of zero",
          "[ops][norms]") {
  const DeviceMesh mesh = domain();
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {0, 2, 3});
  Tensor x(Array::zeros(spec->local_sizes(), DType::F64), spec);
  x.set_requires_grad();
  Tensor w = ones({2}, DType::F64).set_requires_grad();
  Tensor b = zeros({2}, DType::F64).set_requires_grad();
  const RunningStatistics running{full({2}, 0.25, DType::F64), full({2}, 4.0, DType::F64)};
  const Tensor y = batch_norm(x, running, w, b, {.training = true});
  CHECK(y.sizes() == x.sizes());
  sum(y).backward();
  CHECK(running.mean.to_vector() == std::vector<double>{0.25, 0.25});
  CHECK(running.var.to_vector() == std::vector<double>{4, 4});
  REQUIRE(w.grad().defined());
  REQUIRE(b.grad().defined());
  CHECK(w.grad().to_vector() == std::vector<double>{0, 0});
  CHECK(b.grad().to_vector() == std::vector<double>{0, 0});
  instance_norm(x, running);
  CHECK(running.mean.to_vector() == std::vector<double>{0.25, 0.25});
}

TEST_CASE("running statistics move in place and backward notices", "[ops][norms]") {
  const Tensor x = tensor(std::vector<double>{1, 2, 6, 3}, {4, 1}, DType::F64);
  const RunningStatistics running{zeros({1}, DType::F32), ones({1}, DType::F32)};
  const std::uint32_t version = running.mean.local().version();
  const Tensor y = batch_norm(x, running, {}, {}, {.training = true, .momentum = 0.5});
  CHECK(running.mean.item() == Approx(1.5));
  CHECK(running.var.item() == Approx(0.5 + 0.5 * 14.0 / 3.0));
  CHECK(running.mean.dtype() == DType::F32);
  CHECK(running.mean.local().version() > version);
  CHECK_FALSE(running.mean.requires_grad());
  // Normalising by given statistics leaves them alone.
  batch_norm(x, running, {}, {}, {.training = false});
  CHECK(running.mean.item() == Approx(1.5));
}

TEST_CASE("an infinite input has an ordinary gradient where the statistics are given", "[ops][norms]") {
  Tensor x = tensor(std::vector<double>{std::numeric_limits<double>::infinity(), 1}, {1, 2}, DType::F64);
  x.set_requires_grad();
  const RunningStatistics running{zeros({2}, DType::F64), full({2}, 4.0 - 1e-5, DType::F64)};
  sum(batch_norm(x, running)).backward();
  CHECK(worst(x.grad().to_vector(), {0.5, 0.5}) < 1e-12);
}

TEST_CASE("norms of transposed memory and of bfloat16", "[ops][norms]") {
  Generator g(test_seed());
  const Tensor x = randn({2, 5, 4, 6}, g, DType::F64);
  for (const auto& [name, norm] : norms()) {
    INFO(name);
    const Tensor turned = permute(x, {0, 3, 2, 1});  // [2, 6, 4, 5], channels innermost in memory
    const Tensor w = rand({6}, g, DType::F64);
    const Tensor b = randn({6}, g, DType::F64);
    const std::vector<double> want = norm(contiguous(turned), w, b).to_vector();
    CHECK(worst(norm(turned, w, b).to_vector(), want) < 1e-14);
    const auto half = [](const Tensor& t) { return to(t, DType::BF16); };
    const Tensor y = norm(half(turned), half(w), half(b));
    CHECK(y.dtype() == DType::BF16);
    CHECK(worst(y.to_vector(), want) < 0.06);
  }
  // Without eps that of float32 counts, in which bfloat16 is computed.
  CHECK(rms_norm(Tensor(Array::full({1, 4}, 1e-4, DType::BF16)), {4}).to_vector().front() ==
        Approx(0.2793).epsilon(0.01));
}

TEST_CASE("statistics travel in one message forward and one backward, or in none", "[ops][norms]") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh = domain();
  Recorder& recorder = mesh.comm().recorder();
  const auto messages = [&](const Norm& norm, int dim, const Dims& sizes) {
    Tensor x(Array::full(ShardSpec::make(mesh, {Shard(dim)}, sizes)->local_sizes(), 1.0, DType::F32),
             ShardSpec::make(mesh, {Shard(dim)}, sizes));
    x.set_requires_grad();
    Tensor w = ones({sizes[1]}).set_requires_grad();
    Tensor b = zeros({sizes[1]}).set_requires_grad();
    recorder.start();
    const Tensor y = norm(x, w, b);
    const std::int64_t forward = std::ssize(recorder.records());
    y.backward(Tensor(Array::full(y.spec()->local_sizes(), 1.0, DType::F32), y.spec()));
    recorder.stop();
    return std::pair<std::int64_t, std::int64_t>(forward, std::ssize(recorder.records()) - forward);
  };
  const std::pair<std::int64_t, std::int64_t> none{0, 0};
  const std::pair<std::int64_t, std::int64_t> one{1, 1};
  const auto all = norms();
  const Norm group = all[0].second;
  const Norm batch = all[1].second;
  const Norm instance = all[2].second;
  const Norm rms = [](const Tensor& x, const Tensor& w, const Tensor&) {
    return rms_norm(x, {x.sizes()[2]}, w);
  };
  const Dims sizes{8, 12, 12};
  CHECK(messages(group, 0, sizes) == none);
  CHECK(messages(group, 2, sizes) == one);
  CHECK(messages(batch, 0, sizes) == one);
  CHECK(messages(batch, 1, sizes) == none);
  CHECK(messages(batch, 2, sizes) == one);
  CHECK(messages(instance, 0, sizes) == none);
  CHECK(messages(instance, 1, sizes) == none);
  CHECK(messages(instance, 2, sizes) == one);
  CHECK(messages(rms, 1, sizes) == none);
  CHECK(messages(rms, 2, sizes) == one);
}

TEST_CASE("norms on the meta device: nothing computed, all counted", "[ops][norms]") {
  const Communicator planned = recording_communicator(3, 16);
  const DeviceMesh mesh(planned, {{"domain", 16}});
  const Dims sizes{2, 6, 40};
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, sizes);
  const auto meta = [](const Dims& d) { return Tensor(Array::empty(d, DType::F32, Device::Meta)); };
  Tensor x(Array::empty(spec->local_sizes(), DType::F32, Device::Meta), spec);
  x.set_requires_grad();
  const RunningStatistics running{meta({6}), meta({6})};
  planned.recorder().start();
  const Tensor y = group_norm(batch_norm(x, running, {}, {}, {.training = true}), 3);
  planned.recorder().stop();
  CHECK(planned.recorder().bytes("all_gather") == 3 * 4 * (6 + 2 * 3));
  planned.recorder().start();
  sum(rms_norm(y, {40})).backward();
  planned.recorder().stop();
  CHECK(planned.recorder().bytes("all_gather") == 0);
  CHECK(planned.recorder().bytes("all_reduce") == 4 * (12 + 12 + 2 * 6 + 2 * 6));
}

namespace {

// Samples shared out over "ddp", each rank seeing its own; what is left of the mesh cuts them.
struct Shares {
  DeviceMesh mesh;
  DeviceMesh inner;  // undefined: plain
  Interval own;
  SharedBatch shared() const { return {mesh, mesh.axis("ddp")}; }
};

std::vector<Shares> shares_of(Random& random, std::int64_t samples) {
  const int ranks = test_world().size();
  std::vector<std::vector<MeshAxis>> meshes{{{"ddp", ranks}}, {{"ddp", 1}, {"domain", ranks}}};
  if (ranks == 4) meshes.insert(meshes.end(), {{{"ddp", 2}, {"domain", 2}}, {{"domain", 2}, {"ddp", 2}}});
  std::vector<Shares> list;
  for (const auto& axes : meshes) {
    Shares s;
    s.mesh = DeviceMesh(test_world(), axes);
    if (axes.size() > 1) s.inner = s.mesh["domain"];
    const int axis = s.mesh.axis("ddp");
    const auto lengths = random_lengths(random, samples, s.mesh.size(axis));  // also none
    std::int64_t at = 0;
    for (int c = 0; c < s.mesh.coordinate(axis); ++c) at += lengths[static_cast<std::size_t>(c)];
    s.own = {at, at + lengths[static_cast<std::size_t>(s.mesh.coordinate(axis))]};
    list.push_back(s);
  }
  return list;
}

// This rank's samples of `whole`, cut along the last dim over the inner mesh.
Tensor own_part(const Shares& s, const Tensor& whole, const std::vector<std::int64_t>& lengths) {
  const Tensor mine = slice(whole, 0, s.own.lo, s.own.hi).detach();
  if (!s.inner.defined()) return Tensor(mine.local().clone());
  const auto spec = ShardSpec::from_lengths(s.inner, {Shard(2)}, mine.sizes(), {lengths});
  return redistribute(mine, spec).detach();
}

// The sum over all ranks of a term that each replica has: all of a replica's ranks see the same.
std::vector<double> over_replicas(const Shares& s, const Tensor& term) {
  const Array sum = term.full_tensor().local().clone();
  s.mesh.group(1U << static_cast<unsigned>(s.mesh.axis("ddp"))).all_reduce(sum, ReduceOp::Sum).wait();
  return sum.to_vector();
}

}  // namespace

TEST_CASE("batch norm of a batch that is shared out: the statistics of all samples", "[ops][norms]") {
  auto random = test_random(92);
  Generator g(random());
  const Dims sizes{7, 3, 6};
  for (int trial = 0; trial < trials(3); ++trial)
    for (const Shares& s : shares_of(random, sizes[0])) {
      INFO(s.mesh.str() << ", samples " << s.own.lo << " to " << s.own.hi);
      Tensor whole = randn(sizes, g, DType::F64).set_requires_grad();
      const Tensor cotangent = randn(sizes, g, DType::F64);
      const Tensor direction = randn(sizes, g, DType::F64);
      const Tensor w0 = rand({3}, g, DType::F64);
      const auto lengths =
          s.inner.defined() ? random_lengths(random, sizes[2], s.inner.size()) : std::vector<std::int64_t>();
      const auto part = [&](const Tensor& t) { return own_part(s, t, lengths); };
      const auto apply = [&](const Tensor& x, const Tensor& w, const RunningStatistics& r,
                             const SharedBatch& b) {
        return batch_norm(x, r, w, {}, {.training = true, .eps = 0.1, .shared = b});
      };
      Tensor w = w0.detach().set_requires_grad();
      Tensor v = w0.detach().set_requires_grad();
      const RunningStatistics a{zeros({3}, DType::F64), ones({3}, DType::F64)};
      const RunningStatistics b{zeros({3}, DType::F64), ones({3}, DType::F64)};
      Tensor x = part(whole).set_requires_grad();
      const Tensor y = apply(x, w, a, s.shared());
      const Tensor want = apply(whole, v, b, {});
      const auto error = [&](const Tensor& got, const Tensor& all) {
        return worst(got.to_vector(), slice(all, 0, s.own.lo, s.own.hi).to_vector());
      };
      CHECK(error(y, want) < 1e-12);
      CHECK(worst(a.mean.to_vector(), b.mean.to_vector()) < 1e-13);
      CHECK(worst(a.var.to_vector(), b.var.to_vector()) < 1e-13);
      for (const bool twice : {false, true}) {
        const BackwardOptions options{.retain_graph = true, .create_graph = twice};
        const Tensors got = grad({y}, {x, w}, {part(cotangent)}, options);
        const Tensors expected = grad({want}, {whole, v}, {cotangent}, options);
        CHECK(error(got[0], expected[0]) < 1e-12);
        CHECK(worst(over_replicas(s, got[1]), expected[1].to_vector()) < 1e-12);
        if (!twice) continue;
        const Tensor second = grad({got[0]}, {x}, {part(direction)})[0];
        CHECK(error(second, grad({expected[0]}, {whole}, {direction})[0]) < 1e-11);
      }
    }
}

TEST_CASE("running statistics of instance norm over a batch that is shared out", "[ops][norms]") {
  auto random = test_random(93);
  Generator g(random());
  for (const Shares& s : shares_of(random, 5)) {
    INFO(s.mesh.str());
    const Tensor whole = randn({5, 3, 6}, g, DType::F64);
    const RunningStatistics a{zeros({3}, DType::F64), ones({3}, DType::F64)};
    const RunningStatistics b{zeros({3}, DType::F64), ones({3}, DType::F64)};
    const auto lengths =
        s.inner.defined() ? random_lengths(random, 6, s.inner.size()) : std::vector<std::int64_t>();
    instance_norm(own_part(s, whole, lengths), a, {}, {}, {.shared = s.shared()});
    instance_norm(whole, b);
    CHECK(worst(a.mean.to_vector(), b.mean.to_vector()) < 1e-13);
    CHECK(worst(a.var.to_vector(), b.var.to_vector()) < 1e-13);
  }
}

TEST_CASE("a tensor on the whole mesh is the whole batch", "[ops][norms]") {
  const DeviceMesh mesh(test_world(), {{"ddp", test_world().size()}});
  Generator g(test_seed());
  const Tensor whole = randn({7, 2}, g, DType::F64);
  const Tensor x = redistribute(whole, ShardSpec::make(mesh, {Shard(0)}, whole.sizes()));
  const Tensor y = batch_norm(x, {}, {}, {}, {.training = true, .shared = {mesh, 0}});
  CHECK(worst(y.to_vector(), batch_norm(whole, {}, {}, {}, {.training = true}).to_vector()) < 1e-12);
}

TEST_CASE("norms refuse what does not fit, alike on every rank", "[ops][norms]") {
  const DeviceMesh mesh = domain();
  const auto sharded = [&](const Dims& sizes) {
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, sizes);
    return Tensor(Array::zeros(spec->local_sizes(), DType::F32), spec);
  };
  const Tensor x = sharded({2, 6, 3});
  const RunningStatistics running{zeros({6}), ones({6})};
  const auto said = [](const std::function<void()>& f) {
    const std::string text = refusal(f);
    CHECK(same_everywhere(text));
    return text;
  };
  CHECK(contains(said([&] { group_norm(x, 4); }),
                 "6 channels of the input [2, 6, 3] cannot be divided into 4"));
  CHECK(contains(said([&] { batch_norm(x, {}, {}, {}, {.training = true, .eps = 0}); }),
                 "eps is 0, in training a positive number is needed"));
  CHECK(contains(said([&] { batch_norm(x, running, {}, {}, {.training = false, .eps = -1e-5}); }),
                 "eps is -1e-05, at least 0 is needed"));
  CHECK(contains(said([&] { group_norm(x, 0); }), "cannot be divided into 0 groups"));
  CHECK(contains(said([&] { group_norm(sharded({6}), 2); }), "needs [N, C, ...], given [6]"));
  CHECK(contains(said([&] { group_norm(sharded({1, 4}), 4); }), "more than one value per channel"));
  CHECK(contains(said([&] { group_norm(x, 2, ones({3})); }), "one element for each of 6 channels"));
  CHECK(contains(said([&] { group_norm(x, 2, ones({6}, DType::F64)); }), "dtype f32, given [6] f64"));
  CHECK(contains(said([&] { group_norm(to(x, DType::I64), 2); }), "needs a floating tensor, given i64"));
  CHECK(contains(said([&] {
                   batch_norm(sharded({1, 4}), {}, {}, {}, {.training = true});
                 }),
                 "more than one value per channel, given input [1, 4]"));
  CHECK(contains(said([&] { batch_norm(x, {}); }), "running statistics are needed"));
  CHECK(contains(said([&] { batch_norm(x, {zeros({6}), {}}); }), "both be given or neither"));
  CHECK(contains(said([&] { batch_norm(x, {zeros({5}), ones({5})}); }), "given [5] f32"));
  CHECK(contains(said([&] {
                   instance_norm(sharded({2, 3, 1}));
                 }),
                 "more than one value per channel of a sample"));
  CHECK(contains(said([&] { instance_norm(x, {}, {}, {}, {.use_input_stats = false}); }),
                 "running statistics"));
  CHECK(contains(said([&] { rms_norm(x, {6}); }), "normalized_shape [6] must be the last sizes"));
  CHECK(contains(said([&] { rms_norm(x, {}); }), "normalized_shape [] must be the last sizes"));
  CHECK(contains(said([&] { rms_norm(x, {3}, ones({2})); }), "must have sizes [3]"));
  const DeviceMesh other(test_world(), {{"ddp", test_world().size()}});
  CHECK(contains(said([&] {
                   batch_norm(x, {}, {}, {}, {.training = true, .shared = {other, 0}});
                 }),
                 "the input lives on the mesh domain="));
  CHECK(contains(said([&] {
                   batch_norm(ones({2, 2}), {}, {}, {}, {.training = true, .shared = {other, 3}});
                 }),
                 "shared out over axis 3"));
  // One sample in all, which only shows when the ranks have told each other.
  const Dims few{test_world().rank() == 0 ? 1 : 0, 4};
  CHECK(contains(said([&] {
                   batch_norm(ones(few), {}, {}, {}, {.training = true, .shared = {other, 0}});
                 }),
                 "more than one value per channel"));
}
