// The tape over ranks: placements of gradients, plain tensors beside sharded ones, losses over uneven and
// empty shards, and what is refused on every rank alike.
#include <catch2/catch.hpp>

#include "autograd/adjoints.h"
#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"
#include "tests/placed_values.h"

using namespace tessera;
using namespace tessera::mesh_cases;
using namespace tessera::placed_values;

namespace {

SpecPtr uneven(Random& random, const DeviceMesh& mesh, const Dims& sizes, int dim) {
  Placements p(static_cast<std::size_t>(mesh.ndim()));
  p[0] = Shard(dim);
  return ShardSpec::from_lengths(mesh, p, sizes, {random_lengths(random, sizes[dim], mesh.size(0))});
}

}  // namespace

TEST_CASE("a plain tensor beside a sharded one: its gradient is owed until it is read", "[autograd]") {
  auto random = test_random(50);
  const DeviceMesh mesh = all_meshes().front();
  const Dims sizes{7, 3};
  const Tensor x = placed(random_values(random, 21), uneven(random, mesh, sizes, 0));
  const Tensor b = plain(random_values(random, 3), {3}, true);
  const Values c = random_values(random, 21);
  const Tensor y = x + b;
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  y.backward(plain(c, sizes));
  recorder.stop();
  CHECK(recorder.records().empty());
  REQUIRE(pending_grad(b).is_sharded());
  CHECK(pending_grad(b).spec()->placement(0) == Partial());
  recorder.start();
  const Tensor g = b.grad();
  recorder.stop();
  CHECK(recorder.records().size() == (mesh.size() > 1 ? 1 : 0));  // a sum over one rank is made
  CHECK_FALSE(g.is_sharded());
  Values columns(3, 0.0);
  for (std::size_t i = 0; i < c.size(); ++i) columns[i % 3] += c[i];
  check_close(g.to_vector(), columns);
  recorder.start();
  check_close(b.grad().to_vector(), columns);  // read again: nothing is owed any more
  recorder.stop();
  CHECK(recorder.records().empty());
  check_close(x.grad().to_vector(), c);
  CHECK(x.grad().spec() == x.spec());
}

TEST_CASE("a parameter used beside sharded and beside plain tensors", "[autograd]") {
  auto random = test_random(51);
  for (const DeviceMesh& mesh : all_meshes()) {
    const Dims sizes{5, 4};
    const Values xv = random_values(random, 20);
    const Values wv = random_values(random, 4);
    const Tensor x = placed(xv, random_spec(random, mesh, sizes));
    const Tensor w = plain(wv, {4}, true);
    (sum(x * w) + sum(w * w) + sum(x * (w * w))).backward();
    Values expected(4, 0.0);
    for (std::size_t i = 0; i < 4; ++i) expected[i] = 2 * wv[i];
    for (std::size_t i = 0; i < 20; ++i) expected[i % 4] += xv[i] * (1 + 2 * wv[i % 4]);
    check_close(w.grad().to_vector(), expected);
  }
}

TEST_CASE("losses over uneven and empty shards are the whole loss, and so are their gradients",
          "[autograd]") {
  auto random = test_random(52);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(8); ++trial) {
      const Dims sizes{random_int(random, 1, 5), random_int(random, 1, 5)};
      const std::int64_t n = numel_of(sizes);
      const Values xv = random_values(random, n);
      const Values yv = random_values(random, n);
      const Tensor x = placed(xv, random_spec(random, mesh, sizes));
      const Tensor y = placed(yv, random_spec(random, mesh, sizes));
      const Tensor loss = mse_loss(x, y);
      double expected = 0;
      Values dx;
      Values dy;
      for (std::size_t i = 0; i < xv.size(); ++i) {
        const double d = xv[i] - yv[i];
        expected += d * d / static_cast<double>(n);
        dx.push_back(2 * d / static_cast<double>(n));
        dy.push_back(-dx.back());
      }
      INFO(x.spec()->str() << " and " << y.spec()->str());
      check_close({loss.item()}, {expected});
      loss.backward();
      check_close(x.grad().to_vector(), dx);
      check_close(y.grad().to_vector(), dy);
      x.zero_grad();
      const Tensor m = mean(x);
      m.backward();
      check_close(x.grad().to_vector(), Values(xv.size(), 1.0 / static_cast<double>(n)));
    }
}

TEST_CASE("reported losses: a larger batch, replicated weights, unequal shares", "[autograd]") {
  auto random = test_random(53);
  const DeviceMesh mesh = all_meshes().front();
  Values twelve;
  for (int i = 1; i <= 12; ++i) twelve.push_back(i);
  std::vector<std::int64_t> cut = random_lengths(random, 6, mesh.size());
  if (mesh.size() == 2) cut = {4, 2};
  const Tensor x = placed(twelve, ShardSpec::from_lengths(mesh, {Shard(1)}, {2, 6}, {cut}), false);
  const Tensor w = plain({0.5}, {}, true);
  const Tensor y = x * w;
  const Tensor loss = mean(square(y));
  check_close({loss.item()}, {13.541666666666666});
  loss.backward();
  check_close(w.grad().to_vector(), {54.166666666666664});
  Values half;
  for (const double v : twelve) half.push_back(v / 2);
  CHECK(reshape(y, {12}).to_vector() == half);

  const Tensor p = placed({0, 1, 2, 3, 4, 5}, uneven(random, mesh, {6}, 0));
  const Tensor weights = plain({1, 2, 3, 4, 5, 6}, {6});
  check_close({(sum(weights * p * p) / sum(weights)).item()}, {13.333333333333334});

  Values thirteen;
  for (int i = 1; i <= 13; ++i) thirteen.push_back(i);
  const Tensor one = plain({1}, {}, true);
  const Tensor average = mean(placed(thirteen, uneven(random, mesh, {13}, 0), false) * one);
  check_close({average.item()}, {7});
  average.backward();
  check_close(one.grad().to_vector(), {7});
}

TEST_CASE("every change of placement has the identity as its gradient", "[autograd]") {
  auto random = test_random(54);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(40); ++trial) {
      const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 1, 3)), 5);
      const std::int64_t n = numel_of(sizes);
      const Values xv = random_values(random, n);
      const Values c = random_values(random, n);
      const Tensor x = placed(xv, random_spec(random, mesh, sizes, {.partial = true, .mixed = true}));
      const SpecPtr to = random_spec(random, mesh, sizes, {.partial = true, .mixed = true});
      const Tensor cotangent = chance(random, 40)
                                   ? plain(c, sizes)
                                   : placed(c, random_spec(random, mesh, sizes, {.partial = true}), false);
      INFO(x.spec()->str() << " to " << to->str() << ", cotangent "
                           << (cotangent.is_sharded() ? cotangent.spec()->str() : "plain"));
      const Tensor y = x.redistribute(to);
      check_close(y.to_vector(), xv);
      y.backward(cotangent, {.retain_graph = true});
      check_close(x.grad().to_vector(), c);
      x.zero_grad();
      (y * y).backward(cotangent);
      Values expected;
      for (std::size_t i = 0; i < xv.size(); ++i) expected.push_back(2 * xv[i] * c[i]);
      check_close(x.grad().to_vector(), expected);
      x.zero_grad();
      const Tensor whole = x.full_tensor();
      CHECK_FALSE(whole.is_sharded());
      check_close(whole.to_vector(), xv);
      (whole * whole).backward(cotangent);
      check_close(x.grad().to_vector(), expected);
      CHECK(x.grad().spec() == without_partial(*x.spec()));
    }
}

TEST_CASE("gradients of differing placements meet at one tensor", "[autograd]") {
  auto random = test_random(55);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(10); ++trial) {
      const Dims sizes{4, 3};
      const Values xv = random_values(random, 12);
      const Tensor x = placed(xv, random_spec(random, mesh, sizes, {.partial = true}));
      const Tensor y = x * x;
      Tensor total = sum(y);
      Values expected;
      Values factor(12, 1.0);
      for (int use = 0; use < 4; ++use) {
        const Values c = random_values(random, 12);
        for (std::size_t i = 0; i < 12; ++i) factor[i] += c[i];
        total = total + sum(y.redistribute(random_spec(random, mesh, sizes, {.partial = true})) *
                            placed(c, random_spec(random, mesh, sizes), false));
      }
      total.backward();
      for (std::size_t i = 0; i < 12; ++i) expected.push_back(2 * xv[i] * factor[i]);
      check_close(x.grad().to_vector(), expected);
      total = Tensor();
      sum(x).backward();  // accumulates onto it
      for (double& e : expected) e += 1;
      check_close(x.grad().to_vector(), expected);
    }
}

TEST_CASE("owed gradients add up over passes, also where one was read between them", "[autograd]") {
  auto random = test_random(59);
  const DeviceMesh mesh = all_meshes().front();
  const Dims sizes{7, 3};
  const Tensor x = placed(random_values(random, 21), uneven(random, mesh, sizes, 0), false);
  const Tensor b = plain(random_values(random, 3), {3}, true);
  Values columns(3, 0.0);
  for (int pass = 0; pass < 5; ++pass) {
    const Values c = random_values(random, 21);
    for (std::size_t i = 0; i < c.size(); ++i) columns[i % 3] += c[i];
    (x + b).backward(plain(c, sizes));
    if (pass % 2 == 0) continue;
    REQUIRE(pending_grad(b).is_sharded());
    check_close(b.grad().to_vector(), columns);
    CHECK_FALSE(pending_grad(b).is_sharded());
  }
  check_close(b.grad().to_vector(), columns);
}

TEST_CASE("two meshes in one operation are refused", "[autograd]") {
  const DeviceMesh a = mesh_over(test_world(), {test_world().size()});
  const DeviceMesh b(test_world(), {{"other", test_world().size()}});
  const Tensor x = placed({1, 2, 3, 4}, ShardSpec::make(a, {Shard(0)}, {4}));
  const Tensor y = placed({1, 2, 3, 4}, ShardSpec::make(b, {Shard(0)}, {4}));
  const std::string text = refusal([&] { add(x, y); });
  CHECK(contains(text, "different meshes: a0="));
  CHECK(contains(text, "other="));
  CHECK(same_everywhere(text));
}

TEST_CASE("from_local with and without a spec", "[autograd]") {
  auto random = test_random(56);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(8); ++trial) {
      const Dims sizes{random_int(random, 1, 5), 4};
      const Values xv = random_values(random, numel_of(sizes));
      Placements placements;
      std::vector<std::vector<std::int64_t>> lengths;
      for (int axis = 0; axis < mesh.ndim(); ++axis) {
        const std::int64_t kind = random_int(random, 0, 3);
        placements.push_back(kind == 0 ? Replicate() : kind == 1 ? Partial() : Shard(axis));
        lengths.push_back(kind < 2 ? std::vector<std::int64_t>{}
                                   : random_lengths(random, sizes[axis], mesh.size(axis)));
      }
      const SpecPtr spec = ShardSpec::from_lengths(mesh, placements, sizes, lengths);
      const Tensor x = placed(xv, spec, false);
      CHECK(ShardTensor::from_local(x.local(), spec).spec() == spec);
      const ShardTensor asked = ShardTensor::from_local(x.local(), mesh, placements);
      CHECK(asked.spec() == spec);
      CHECK(asked.local().raw() == x.local().raw());
    }
}

TEST_CASE("from_local refuses what does not go together, on every rank", "[autograd]") {
  const DeviceMesh mesh = all_meshes().front();
  const int rank = mesh.rank();
  const bool last = rank == mesh.size() - 1;
  if (mesh.size() > 1) {
    const auto text_of = [&](const Array& local) {
      return refusal([&] { ShardTensor::from_local(local, mesh, {Shard(0)}); });
    };
    const std::string sizes = text_of(Array::zeros({2, last ? 4 : 3}, DType::F32));
    CHECK(contains(sizes, "dim 1 has size"));
    CHECK(same_everywhere(sizes));
    const std::string dims = text_of(last ? Array::zeros({2}, DType::F32) : Array::zeros({2, 3}, DType::F32));
    CHECK(contains(dims, "dims"));
    CHECK(same_everywhere(dims));
    const std::string types = text_of(Array::zeros({2}, last ? DType::F64 : DType::F32));
    CHECK(contains(types, "gives f64, rank 0 gives f32"));
    CHECK(same_everywhere(types));
    const auto placed_as = [&](const Placements& theirs, const Placements& others) {
      const Array local = Array::zeros({4, 4}, DType::F32);
      const std::string text = refusal([&] { ShardTensor::from_local(local, mesh, last ? theirs : others); });
      CHECK(same_everywhere(text));
      return text;
    };
    CHECK(contains(placed_as({Shard(1)}, {Shard(0)}), "gives (Shard(1)), rank 0 gives (Shard(0))"));
    CHECK(contains(placed_as({Replicate()}, {Partial()}), "gives (Replicate), rank 0 gives (Partial(sum))"));
    CHECK(contains(placed_as({Partial(ReduceOp::Max)}, {Partial()}),
                   "gives (Partial(max)), rank 0 gives (Partial(sum))"));
    CHECK(contains(placed_as({Shard(0), Shard(1)}, {Shard(0)}), "gives 2 placements, rank 0 gives 1"));
    CHECK(ShardTensor::from_local(Array::zeros({4, 4}, DType::F32), mesh, {last ? Shard(-2) : Shard(0)})
              .sizes() == Dims{4 * mesh.size(), 4});
  }
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {2 * mesh.size()});
  CHECK(
      contains(refusal([&] { ShardTensor::from_local(Array::zeros({3}, DType::F32), spec); }),
               fmt::format("local sizes [3] of rank {} do not fit the spec {}, of which that rank holds [2]",
                           rank, spec->str())));
  CHECK(contains(refusal([&] { ShardTensor::from_local(Array::zeros({3}, DType::F32), mesh, {}); }),
                 "0 placements given"));
  CHECK(contains(refusal([&] { const ShardTensor t(plain({1}, {1})); }), "plain"));
}

TEST_CASE("detached shards share memory and have no history", "[autograd]") {
  const DeviceMesh mesh = all_meshes().front();
  const Tensor x = placed({1, 2, 3, 4}, ShardSpec::make(mesh, {Shard(0)}, {4}));
  const Tensor d = (x * 2.0).detach();
  CHECK(d.spec() == x.spec());
  CHECK_FALSE(d.requires_grad());
  CHECK(x.detach().local().raw() == x.local().raw());
}

TEST_CASE("ranks with empty shards run the same nodes in the same order", "[autograd]") {
  auto random = test_random(57);
  const DeviceMesh mesh = all_meshes().front();
  std::vector<std::int64_t> cut(static_cast<std::size_t>(mesh.size()), 0);
  cut.back() = 4;
  const Tensor x = placed(random_values(random, 8), ShardSpec::from_lengths(mesh, {Shard(0)}, {4, 2}, {cut}));
  std::string order;
  const auto watched = [&](const Tensor& t, const char* name) {
    t.register_hook([&order, name](const Tensor& g) {
      order += fmt::format("{}{} ", name, g.sizes().str());
      return Tensor();
    });
    return t;
  };
  const Tensor s = watched(softmax(x, 0), "softmax");
  const Tensor n = watched(layer_norm(s, {4, 2}), "norm");
  const Tensor m = watched(matmul(n, transpose(s, 0, 1)), "matmul");
  mean(m * m).backward();
  CHECK(order == "matmul[4, 4] norm[4, 2] softmax[4, 2] ");
  CHECK(same_everywhere(order));
  CHECK(x.grad().local().size(0) == cut[static_cast<std::size_t>(mesh.rank())]);
}

TEST_CASE("tensors outlive the handles of their mesh", "[autograd]") {
  auto random = test_random(58);
  const Values xv = random_values(random, 12);
  Tensor x;
  {
    const DeviceMesh mesh(test_world(), {{"gone", test_world().size()}});
    x = placed(xv, ShardSpec::make(mesh, {Shard(0)}, {4, 3}));
  }
  const Tensor moved = x.redistribute(Placements{Shard(1)});
  check_close(moved.to_vector(), xv);
  sum(moved * x).backward();
  Values expected;
  for (const double v : xv) expected.push_back(2 * v);
  check_close(x.grad().to_vector(), expected);
}
