// What the bench's group "overhead" measures: every operation of the library, and calls that send nothing.
#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "bench/overhead_subjects.h"
#include "ops/ops.h"
#include "tests/support/world.h"
#include "verify/programs.h"

using namespace tessera;

TEST_CASE("the host's cost of every operation is measured") {
  std::set<std::string> measured;
  std::set<std::string> names;
  for (const bench::Subject& s : bench::overhead_subjects(Device::Cpu)) {
    measured.insert(s.op);
    INFO(s.name());
    CHECK(names.insert(s.name()).second);
  }
  std::set<std::string> expected = verify::op_names();
  // Of which there are no case files.
  expected.insert({"eq", "ne", "lt", "le", "gt", "ge", "to", "contiguous", "dropout", "rand", "randn",
                   "uniform_", "normal_", "trunc_normal_"});
  CHECK(measured == expected);
}

TEST_CASE("what is measured gives on tensors cut over the ranks what it gives plain, and sends nothing") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  for (const bench::Subject& s : bench::overhead_subjects(Device::Cpu)) {
    INFO(s.name());
    Generator generator(7);
    const Tensor x = to(rand(s.local, generator) * (is_floating(s.dtype) ? 1.0 : 8.0), s.dtype);
    const Tensor numbers = s.numbers.empty() ? Tensor() : to(rand(s.numbers, generator) * 8.0, DType::I64);
    const Tensor plain = s.call(x, numbers);
    REQUIRE(plain.defined());
    if (s.asks || s.draws) continue;
    const auto cut = [&](const Tensor& own, int dim) {
      Dims global = own.sizes();
      global[dim] *= mesh.size();
      return Tensor(own.local(), ShardSpec::make(mesh, {Shard(dim)}, global));
    };
    const std::int64_t before = test_world().recorder().totals().calls;
    const Tensor sharded = s.call(cut(x, s.dim), numbers.defined() ? cut(numbers, 0) : numbers);
    CHECK(test_world().recorder().totals().calls == before);
    REQUIRE(sharded.local().sizes() == plain.sizes());
    const std::vector<double> got = sharded.local().to_vector();
    const std::vector<double> want = plain.to_vector();
    const double share = s.averages ? 1.0 / mesh.size() : 1.0;
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i] * share) <= 1e-5);
  }
}

TEST_CASE("what draws numbers gives the same whole tensor cut over the ranks and plain, and sends nothing") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  int drawing = 0;
  for (const bench::Subject& s : bench::overhead_subjects(Device::Cpu)) {
    if (!s.draws) continue;
    INFO(s.name());
    ++drawing;
    Dims global = s.local;
    global[s.dim] *= mesh.size();
    const auto own = [&] { return ones(global); };
    const std::vector<double> plain = s.call(own(), Tensor()).to_vector();
    const Tensor x = redistribute(own(), ShardSpec::make(mesh, {Shard(s.dim)}, global)).detach();
    const std::int64_t before = test_world().recorder().totals().calls;
    const Tensor sharded = s.call(x, Tensor());
    CHECK(test_world().recorder().totals().calls == before);
    CHECK(sharded.to_vector() == plain);
    CHECK(s.call(own(), Tensor()).to_vector() == plain);
    CHECK(plain != own().to_vector());
  }
  CHECK(drawing == 7);
}
