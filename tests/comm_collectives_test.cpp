// Collectives under MPI against plain loops; the recorder's counts; refusals.
#include <catch2/catch.hpp>

#include "tests/comm_cases.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

TEST_CASE("all_reduce adds in rank order, the same bits on every rank") {
  all_reduces(test_world(), {0, 1, 3, 1000, 40'000});
}

TEST_CASE("sums of bf16 and f16 are rounded once") {
  const Communicator world = test_world();
  // Each rank adds less than half the spacing: every single sum would be rounded away.
  const auto check = [&](double first, double next, DType dtype) {
    const Array array = Array::full({10}, world.rank() == 0 ? first : next, dtype);
    world.all_reduce(array, ReduceOp::Sum).wait();
    const double exact = first + next * (world.size() - 1);
    CHECK(array.at(7) == Array::full({1}, exact, dtype).at(0));
  };
  check(256, 0.75, DType::BF16);
  check(2048, 0.75, DType::F16);
}

TEST_CASE("NaN survives max and min") {
  const Communicator world = test_world();
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    for (int where = 0; where < world.size(); ++where) {
      const Array array = Array::full(
          {3}, world.rank() == where ? std::numeric_limits<double>::quiet_NaN() : 1.0, DType::F32);
      world.all_reduce(array, op).wait();
      CHECK(std::isnan(array.at(1)));
    }
  }
}

TEST_CASE("reduce_scatter keeps each rank's slab") { reduce_scatters(test_world()); }
TEST_CASE("gather, scatter, broadcast and all_to_all move every dtype") { movements(test_world()); }
TEST_CASE("only the elements of a strided view change") { strided_arrays(test_world()); }
TEST_CASE("host values are gathered and failures agreed") { host_values(test_world()); }

TEST_CASE("collectives in sub-groups") {
  const Communicator world = test_world();
  const Communicator group = world.split(world.rank() == 0 ? -1 : 3, -world.rank());
  CHECK(group.defined() == (world.rank() != 0));
  if (!group.defined()) return;
  CHECK(group.size() == world.size() - 1);
  CHECK(group.rank() == world.size() - 1 - world.rank());
  all_reduces(group, {1, 50'000});
  movements(group);
  strided_arrays(group);
}

TEST_CASE("one record per collective with this rank's bytes") {
  const Communicator world = test_world();
  const bool alone = world.size() == 1;
  const Array array = Array::zeros({8 * world.size(), 2}, DType::F32);
  const Array part = Array::zeros({8, 2}, DType::F32);
  const std::int64_t calls = world.recorder().totals().calls;
  world.recorder().start();
  {
    const CommScope scope("test");
    world.all_reduce(array, ReduceOp::Sum).wait();
    const unsigned line = __LINE__ - 1;
    CHECK(std::string(world.recorder().records().at(0).scope) == "test");
    CHECK(contains(world.recorder().records().at(0).file, "comm_collectives_test.cpp"));
    CHECK(world.recorder().records().at(0).line == line);
    CHECK(world.recorder().records().at(0).group_size == world.size());
  }
  CHECK(std::string(CommScope::current()).empty());
  world.all_gather(array, part).wait();
  world.reduce_scatter(part, array, ReduceOp::Sum).wait();
  world.broadcast(part, 0).wait();
  world.barrier();
  world.recorder().stop();
  const Recorder& recorder = world.recorder();
  CHECK(recorder.totals().calls == calls + 5);
  CHECK(recorder.records().size() == 5);
  CHECK(recorder.count("exchange") == 0);
  CHECK(recorder.bytes("all_reduce") == (alone ? 0 : array.nbytes()));
  CHECK(recorder.bytes("all_gather") == (alone ? 0 : part.nbytes()));
  CHECK(recorder.bytes("reduce_scatter") == (alone ? 0 : array.nbytes()));
  CHECK(recorder.bytes("broadcast") == (alone || world.rank() != 0 ? 0 : part.nbytes()));
  CHECK(recorder.count("barrier") == 1);
  CHECK(recorder.totals().seconds > 0);
  for (const CommRecord& r : recorder.records()) CHECK(r.messages == (alone ? 0 : 1));
}

TEST_CASE("meta arrays are counted, not moved") {
  const Communicator world = test_world();
  const Array array = Array::zeros({1000, 1000}, DType::F64, Device::Meta);
  world.recorder().start();
  world.all_reduce(array, ReduceOp::Sum).wait();
  const int next = (world.rank() + 1) % world.size();
  const int last = (world.rank() + world.size() - 1) % world.size();
  const std::vector<SendBuffer> sends{{next, nullptr, 500}};
  const std::vector<RecvBuffer> recvs{{last, nullptr, 500}};
  world.exchange(sends, recvs).wait();
  world.recorder().stop();
  CHECK(world.recorder().bytes("all_reduce") == (world.size() > 1 ? 8'000'000 : 0));
  CHECK(world.recorder().bytes("exchange") == (world.size() > 1 ? 500 : 0));
  all_reduces(world, {3});  // the ranks are still in step
}

TEST_CASE("wrong arguments are refused in words") {
  const Communicator world = test_world();
  const int size = world.size();
  const Array in = Array::zeros({2, 3}, DType::F32);
  const Array out = Array::zeros({2 * size, 3}, DType::F32);
  const auto refused = [](auto&& call, std::string_view part) {
    const std::string text = message_of(call);
    INFO(text);
    CHECK(contains(text, part));
  };
  refused([&] { world.all_gather(out.to(DType::F64), in); }, "out is f64 but in is f32");
  refused(
      [&] {
        world.all_gather(Array::zeros({2 * size, 4}, DType::F32), in);
      },
      "they may differ in dim 0 only");
  refused([&] { world.all_gather(Array::zeros({2 * size + 1, 3}, DType::F32), in); }, "the counts add up to");
  refused([&] { world.all_gather_v(out, in, std::vector<std::int64_t>{}); }, "0 counts are given");
  refused([&] { world.broadcast(in, size); }, fmt::format("root {} does not exist", size));
  refused([&] { world.all_reduce(Array(), ReduceOp::Sum); }, "undefined");
  refused([&] { world.all_reduce(Array::zeros({1}, DType::F32).expand({4}), ReduceOp::Sum); },
          "overlaps itself");
  if (size > 1) {
    refused(
        [&] { world.all_to_all(Array::zeros({size + 1}, DType::F32), Array::zeros({size + 1}, DType::F32)); },
        "cannot be shared out evenly");
  }
  world.barrier();
}
