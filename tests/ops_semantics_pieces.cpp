// Corners of the operations that take tensors apart and put them together: what is refused, and that nothing
// is sent where elements stay with their ranks.
#include <catch2/catch.hpp>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;

Values counted(std::int64_t n) {
  Values v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i));
  return v;
}

Tensor placed(const SpecPtr& spec) {
  const Tensor whole = tensor(counted(numel_of(spec->sizes())), spec->sizes(), DType::F64);
  return whole.redistribute(spec).detach();
}

std::int64_t calls_of(const std::function<void()>& f) {
  const std::int64_t before = test_world().recorder().totals().calls;
  f();
  return test_world().recorder().totals().calls - before;
}

using One = std::function<Tensor(const Tensor&)>;
struct Silent {
  const char* what;
  One f;
};
const std::vector<Silent>& silent() {
  static const std::vector<Silent> list{
      {"flip",
       [](const Tensor& x) {
         return flip(x, {0, 1});
       }},
      {"repeat",
       [](const Tensor& x) {
         return repeat(x, {2, 1, 3});
       }},
      {"tile",
       [](const Tensor& x) {
         return tile(x, {2, 1});
       }},
      {"repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 2, 0); }},
      {"diagonal", [](const Tensor& x) { return diagonal(x, 1); }},
      {"narrow", [](const Tensor& x) { return narrow(x, 0, 2, 3); }},
      {"stack",
       [](const Tensor& x) {
         return stack({x, x}, 1);
       }},
      {"movedim", [](const Tensor& x) { return movedim(x, {0}, {1}); }},
      {"chunk", [](const Tensor& x) { return chunk(x, 3)[1]; }},
      {"slice in steps", [](const Tensor& x) { return slice(x, 0, 1, INT64_MAX, 2); }},
  };
  return list;
}

}  // namespace

TEST_CASE("shape operations refuse what PyTorch refuses, alike on all ranks", "[ops]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  const Tensor x = placed(ShardSpec::make(mesh, {Shard(0)}, {4, 3}));
  const Tensor s = ones({}, DType::F64);
  const auto says = [](const std::function<void()>& f, const char* part) {
    const std::string text = refusal(f);
    INFO(part);
    CHECK(contains(text, part));
    CHECK(same_everywhere(text));
  };
  says([&] { repeat(x, {2}); }, "numbers [2] given for a tensor [4, 3]");
  says([&] { repeat(x, {2, -1}); }, "must not be negative");
  says([&] { repeat(Tensor(), {2}); }, "undefined");
  says([&] { repeat_interleave(x, -1, 0); }, "must not be negative");
  says([&] { repeat_interleave(s, 2, 1); }, "dim 1");
  says([&] { flip(x, {0, -2}); }, "dim 0 appears twice");
  says([&] { flip(x, {2}); }, "dim 2");
  says([&] { chunk(x, 0); }, "at least one chunk");
  says([&] { chunk(s, 1); }, "tensor with dims");
  says([&] { unbind(s); }, "tensor with dims");
  says([&] { unbind(x, 2); }, "dim 2");
  says([&] { narrow(x, 0, 3, 2); }, "2 elements from 3 do not lie in dim 0 of size 4");
  says([&] { narrow(x, 0, -5, 1); }, "do not lie");
  says([&] { narrow(x, 0, 0, -1); }, "do not lie");
  says([&] { narrow(s, 0, 0, 1); }, "tensor with dims");
  says([&] { select(x, 0, 4); }, "no element 4");
  says([&] { select(x, 0, -5); }, "no element -5");
  says([&] { movedim(x, {0, 0}, {0, 1}); }, "appears twice");
  says([&] { movedim(x, {0}, {0, 1}); }, "cannot move to");
  says([&] { squeeze(x, Dims{0, -2}); }, "appears twice");
  says([&] { stack({}); }, "at least one tensor");
  says([&] { stack({x, s}); }, "same sizes");
  says([&] { stack({x, x}, 3); }, "dim 3");
  says([&] { diagonal(x, 0, 0, -2); }, "must differ");
  says([&] { diagonal(sum(x, {0})); }, "two or more dims");
  says([&] { split(x, {1, 2}); }, "2 sizes sum to 3, dim 0 has size 4");
  says([&] { split(x, {5, -1}); }, "must not be negative");
  says([&] { broadcast_to(x, {3}); }, "fewer dims");
}

TEST_CASE("corners of shape operations", "[ops]") {
  const Tensor x = tensor(counted(6), {2, 3}, DType::F64);
  const Tensor s = ones({}, DType::F64);
  CHECK(unbind(zeros({0, 3}, DType::F64)).empty());
  CHECK(chunk(zeros({0, 3}, DType::F64), 3).size() == 3);
  CHECK(chunk(zeros({5}, DType::F64), 4).size() == 3);
  CHECK(narrow(x, 1, 3, 0).sizes() == Dims{2, 0});
  CHECK(repeat(s, {}).sizes() == Dims{});
  CHECK(tile(x, {}).sizes() == Dims{2, 3});
  CHECK(repeat_interleave(x, 0, 1).sizes() == Dims{2, 0});
  CHECK(repeat_interleave(s, 3, -1).sizes() == Dims{3});
  CHECK(squeeze(zeros({1, 2, 1}, DType::F64), Dims()).sizes() == Dims{1, 2, 1});
  CHECK(squeeze(zeros({1, 2, 1}, DType::F64)).sizes() == Dims{2});
  CHECK(diagonal(x, 5).sizes() == Dims{0});
  CHECK(movedim(zeros({2, 3, 4, 5}, DType::F64), {0, 2}, {-1, 0}).sizes() == Dims{4, 3, 5, 2});
  CHECK(split(tensor(counted(20), {20}, DType::F64), std::vector<std::int64_t>(20, 1)).size() == 20);
}

TEST_CASE("elements stay with their ranks, forward and backward", "[ops]") {
  auto random = test_random(90);
  for (const DeviceMesh& mesh : all_meshes())
    for (const Silent& op : silent()) {
      const SpecPtr spec = random_spec(random, mesh, {7, 5}, {.replicate_percent = 0});
      Tensor x = placed(spec);
      const std::vector<double> want = op.f(tensor(counted(35), {7, 5}, DType::F64)).to_vector();
      INFO(op.what << " of " << spec->str());
      x.set_requires_grad();
      Tensor y;
      CHECK(calls_of([&] { y = op.f(x); }) == 0);
      CHECK(y.to_vector() == want);
      CHECK(calls_of([&] { y.backward(ones_like(y)); }) == 0);
      CHECK(same_layout(*x.grad().spec(), *spec));
    }
}

TEST_CASE("what is owed stays owed where elements are moved about", "[ops]") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  for (const ReduceOp reduction : {ReduceOp::Sum, ReduceOp::Max})
    for (const Silent& op : silent()) {
      if (reduction == ReduceOp::Max && op.what == std::string("stack")) continue;  // joins sums only
      INFO(op.what << " " << name_of(reduction));
      const Tensor owed = placed(ShardSpec::make(mesh, {Partial(reduction)}, {7, 5}));
      Tensor y;
      CHECK(calls_of([&] { y = op.f(owed); }) == 0);
      CHECK(y.spec()->placement(0) == Partial(reduction));
      CHECK(y.to_vector() == op.f(tensor(counted(35), {7, 5}, DType::F64)).to_vector());
    }
}

TEST_CASE("a dim that is taken apart is re-sharded once", "[ops]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  const Tensor x = placed(ShardSpec::make(mesh, {Shard(0)}, {8, 6}));
  const std::int64_t before = test_world().recorder().totals().bytes;
  Tensors parts;
  CHECK(calls_of([&] { parts = unbind(x); }) == (ranks > 1 ? 1 : 0));
  CHECK(test_world().recorder().totals().bytes - before < 48 * 8);
  REQUIRE(parts.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    Values row = counted(6);
    for (double& v : row) v += 6.0 * static_cast<double>(i);
    CHECK(parts[i].to_vector() == row);
  }
}
