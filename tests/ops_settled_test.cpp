// What is owed is made once: whoever needs the sum (or maximum) of a tensor shares it with all who needed it
// before, and their gradients are summed before they go on.
#include <catch2/catch.hpp>

#include "autograd/adjoints.h"
#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;

struct Sent {
  int messages_of_sums = 0;  // calls that make a sum, or scatter or gather what they move
  std::int64_t bytes = 0;    // of this rank
  bool operator==(const Sent&) const = default;
};
Sent sent_by(const std::function<void()>& f) {
  Recorder& recorder = test_world().recorder();
  recorder.start();
  f();
  recorder.stop();
  Sent sent;
  for (const CommRecord& r : recorder.records()) {
    sent.bytes += r.bytes;
    ++sent.messages_of_sums;
  }
  return sent;
}

DeviceMesh line() { return mesh_over(test_world(), {test_world().size()}); }

// Terms that sum to 1, 2, 3, … a third of that apart, each rank's own.
Tensor owed(const DeviceMesh& mesh, const Dims& sizes, const Placement& placement = Partial()) {
  const SpecPtr spec = ShardSpec::make(mesh, {placement}, sizes);
  Values own(static_cast<std::size_t>(numel_of(sizes)));
  const double ranks = mesh.size();
  for (std::size_t i = 0; i < own.size(); ++i)
    own[i] = (static_cast<double>(i) + 1) / 3 / ranks + (mesh.rank() - (ranks - 1) / 2);
  return {Array::from(own, sizes, DType::F64), spec};
}

Tensor whole(const Tensor& t) { return Tensor(t.full_tensor().local().clone()); }

void check_close(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(want[i]).margin(1e-10).epsilon(1e-9));
}

const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>>& several() {
  static const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> list{
      {"relu + tanh", [](const Tensor& s) { return relu(s) + tanh(s); }},
      {"four", [](const Tensor& s) { return sin(s) * cos(s) + softplus(s) - sigmoid(s); }},
      {"twice the same", [](const Tensor& s) { return square(s) * square(s); }},
      {"a norm beside a gate", [](const Tensor& s) { return layer_norm(s, {4}) * silu(s); }},
      {"statistics beside it", [](const Tensor& s) { return softmax(s, 1) + amax(gelu(s), {1}, true); }}};
  return list;
}

}  // namespace

TEST_CASE("several functions of a sum that is owed make it once", "[ops]") {
  const DeviceMesh mesh = line();
  for (const auto& [what, f] : several()) {
    INFO(what);
    const Sent one = sent_by([&] { relu(owed(mesh, {6, 4})); });
    const Tensor s = owed(mesh, {6, 4}).set_requires_grad();
    const Tensor plain = whole(s.detach()).set_requires_grad();
    Tensor y;
    CHECK(sent_by([&] { y = f(s); }) == one);
    const Tensor want = f(plain);
    check_close(y.to_vector(), want.to_vector());
    const Tensor cotangent = tensor(Values(24, 0.7), {6, 4}, DType::F64);
    // The gradient of every term is the whole, which every rank has.
    CHECK(sent_by([&] { y.backward(cotangent); }).bytes == 0);
    want.backward(cotangent);
    check_close(s.grad().to_vector(), plain.grad().to_vector());
    const auto second = [&f = f, &cotangent](const Tensor& t) {
      const Tensor g = grad({f(t)}, {t}, {cotangent}, {.create_graph = true})[0];
      return grad({sum(square(g))}, {t})[0].to_vector();
    };
    check_close(second(s), second(plain));
  }
}

TEST_CASE("beside inputs that are cut a sum is made in the cut, once", "[ops]") {
  const DeviceMesh mesh = line();
  const int ranks = mesh.size();
  const SpecPtr rows = ShardSpec::make(mesh, {Shard(0)}, {6, 4});
  const Tensor m = redistribute(tensor(Values(24, 1.5), {6, 4}, DType::F64), rows).detach();
  const auto f = [&](const Tensor& s) { return maximum(s, m) + minimum(s, m) * maximum(m, s); };
  const Tensor a = tensor(Values(18, 0.25), {6, 3}, DType::F64);
  const auto made = [&](const Tensor& t) { return matmul(a, t); };
  const Tensor b = ones({3, 4}, DType::F64);
  // A product that is owed: its factors are cut along the dim that is summed.
  const SpecPtr inner = ShardSpec::make(mesh, {Shard(0)}, {3, 4});
  Tensor x = redistribute(b, inner).detach().set_requires_grad();
  Tensor plain = b.detach().set_requires_grad();
  const Tensor s = made(x);
  REQUIRE((ranks == 1 || s.spec()->has_partial()));
  const Sent one = sent_by([&] { maximum(s.detach(), m); });
  Tensor y;
  CHECK(sent_by([&] { y = f(s); }) == one);
  const Tensor want = f(made(plain));
  check_close(y.to_vector(), want.to_vector());
  const Tensor single = maximum(s, m);
  const Sent back_of_one = sent_by([&] {
    single.backward(ones({6, 4}, DType::F64), {.retain_graph = true});
  });
  x.zero_grad();
  CHECK(sent_by([&] { y.backward(ones({6, 4}, DType::F64)); }) == back_of_one);
  want.backward(ones({6, 4}, DType::F64));
  check_close(x.grad().to_vector(), plain.grad().to_vector());
}

TEST_CASE("a sum that was made serves other placements, too", "[ops]") {
  const DeviceMesh mesh = line();
  const Tensor s = owed(mesh, {6, 4});
  const SpecPtr rows = ShardSpec::make(mesh, {Shard(0)}, {6, 4});
  const Tensor first = settled(s, without_partial(*s.spec()));
  CHECK(sent_by([&] {
          check_close(settled(s, rows).local().to_vector(), redistribute(first, rows).local().to_vector());
        }).bytes == 0);
  const Tensor t = owed(mesh, {6, 4});
  settled(t, rows);
  const Sent gathered = sent_by([&] { redistribute(redistribute(first, rows), first.spec()); });
  CHECK(sent_by([&] { check_close(settled(t, first.spec()).to_vector(), first.to_vector()); }) == gathered);
}

TEST_CASE("maxima that are owed are made once", "[ops]") {
  const DeviceMesh mesh = line();
  const Tensor s = owed(mesh, {6, 4}, Partial(ReduceOp::Max));
  const Tensor plain = whole(s);
  const Sent one = sent_by([&] { relu(owed(mesh, {6, 4}, Partial(ReduceOp::Max))); });
  Tensor y;
  CHECK(sent_by([&] { y = relu(s) + tanh(s); }) == one);
  check_close(y.to_vector(), (relu(plain) + tanh(plain)).to_vector());
}

TEST_CASE("what is owed anew after a write is made anew", "[ops]") {
  const DeviceMesh mesh = line();
  const Tensor s = owed(mesh, {6, 4});
  const Values before = tanh(s).to_vector();
  s.local().fill_(0.5);
  check_close(tanh(s).to_vector(), Values(24, std::tanh(0.5 * mesh.size())));
  if (mesh.size() == 1) return;  // what one rank owes is the sum itself
  // Nor is a sum handed out that its user has written to.
  const Tensor t = owed(mesh, {6, 4});
  settled(t, without_partial(*t.spec())).local().fill_(9);
  check_close(tanh(t).to_vector(), before);
}

TEST_CASE("a sum made without a history gets one where it is needed, and is nobody else's leaf", "[ops]") {
  const DeviceMesh mesh = line();
  const Tensor s = owed(mesh, {6, 4}).set_requires_grad();
  const Tensor plain = whole(s.detach()).set_requires_grad();
  {
    const NoGrad guard;
    CHECK_FALSE(tanh(s).requires_grad());
  }
  CHECK(sent_by([&] { sum(tanh(s), {0, 1}).backward(ones({}, DType::F64)); }).bytes == 0);
  sum(tanh(plain)).backward();
  check_close(s.grad().to_vector(), plain.grad().to_vector());
  const Tensor t = owed(mesh, {6, 4});
  settled(t, without_partial(*t.spec())).set_requires_grad();
  CHECK_FALSE(settled(t, without_partial(*t.spec())).requires_grad());
}

TEST_CASE("passes over graphs that share a sum that was made do not free it for each other", "[ops]") {
  const DeviceMesh mesh = line();
  const Tensor s = owed(mesh, {6, 4}).set_requires_grad();
  const Tensor plain = whole(s.detach()).set_requires_grad();
  for (const Tensor& from : {s, plain}) {
    const Tensor a = sum(square(from));
    const Tensor b = sum(tanh(from));
    a.backward();
    b.backward();
    sum(sin(from)).backward();
  }
  check_close(s.grad().to_vector(), plain.grad().to_vector());
}

TEST_CASE("a sum that was made goes with the tensor that owed it", "[ops]") {
  const DeviceMesh mesh = line();
  const std::int64_t before = allocator_stats(test_device()).live_bytes;
  Tensor s(Array::zeros({1000, 50}, DType::F64, test_device()),
           ShardSpec::make(mesh, {Partial()}, {1000, 50}));
  const std::int64_t terms = allocator_stats(test_device()).live_bytes - before;
  relu(s);
  tanh(s);
  CHECK(allocator_stats(test_device()).live_bytes - before <= 2 * terms);
  s = Tensor();
  CHECK(allocator_stats(test_device()).live_bytes == before);
}
