// The mode that compares calls: every rank learns which rank differs and what it called.
#include <catch2/catch.hpp>

#include "comm/group.h"
#include "tests/comm_cases.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

class CheckCalls {
 public:
  explicit CheckCalls(const Communicator& comm) : comm_(comm) { comm_.set_check_calls(true); }
  ~CheckCalls() { comm_.set_check_calls(false); }

 private:
  Communicator comm_;
};

}  // namespace

TEST_CASE("right programs pass the check") {
  const Communicator world = test_world();
  const CheckCalls mode(world);
  all_reduces(world, {1, 5000});
  reduce_scatters(world);
  movements(world);
  host_values(world);
  random_exchanges(world, 3, 100);
  const Communicator group = world.split(world.rank() % 2, 0);
  movements(group);
}

TEST_CASE("a call that differs on one rank is named on all ranks") {
  const Communicator world = test_world();
  if (world.size() == 1) return;
  const int odd_one = world.size() - 1;
  const bool odd = world.rank() == odd_one;
  const CheckCalls mode(world);
  const auto refused = [&](auto&& call, std::initializer_list<std::string> parts) {
    const std::string text = message_of(call);
    INFO(text);
    for (const std::string& part : parts) CHECK(contains(text, part));
    CHECK(contains(text, fmt::format("rank {} calls", odd_one)));
    world.set_check_calls(false);
    std::vector<std::string> all = world.all_gather_bytes(text);
    for (const std::string& other : all) CHECK(other == text);
    world.set_check_calls(true);
  };
  const Array a = Array::zeros({3, 4}, DType::F32);
  const Array b = Array::zeros({4, 3}, DType::F32);
  const Array c = Array::zeros({3, 4}, DType::F64);
  refused([&] { world.all_reduce(odd ? b : a, ReduceOp::Sum); }, {"f32 [3, 4]", "f32 [4, 3]"});
  refused([&] { world.all_reduce(odd ? c : a, ReduceOp::Sum); }, {"f32 [3, 4]", "f64 [3, 4]"});
  refused([&] { world.all_reduce(a, odd ? ReduceOp::Max : ReduceOp::Sum); }, {"with max", "with sum"});
  refused([&] { world.broadcast(a, odd ? 1 : 0); }, {"with root 0", "with root 1"});
  refused(
      [&] {
        if (odd) {
          world.barrier();
        } else {
          world.all_reduce(a, ReduceOp::Sum);
        }
      },
      {"calls barrier at", "calls all_reduce of f32 [3, 4] with sum at", "comm_check_test.cpp:"});
  // The same call from two lines.
  const auto here = std::source_location::current();
  const auto there = std::source_location::current();
  refused([&] { world.all_reduce(a, ReduceOp::Sum, odd ? there : here); },
          {fmt::format("comm_check_test.cpp:{}", here.line()),
           fmt::format("comm_check_test.cpp:{}", there.line())});
  const std::vector<std::vector<int>> groups{{0}};
  refused([&] { world.split(0, 0, odd ? there : here); },
          {"calls split at", fmt::format("comm_check_test.cpp:{}", here.line()),
           fmt::format("comm_check_test.cpp:{}", there.line())});
  refused([&] { world.subgroup(groups, odd ? there : here); },
          {"calls subgroup at", fmt::format("comm_check_test.cpp:{}", here.line()),
           fmt::format("comm_check_test.cpp:{}", there.line())});
  all_reduces(world, {7});  // a refused call leaves nothing behind
}

TEST_CASE("making groups is refused at the caller's line") {
  const Communicator world = test_world();
  const auto refusal = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string twice = refusal([&] { world.subgroup({{0, 0}}); });
  const int line = __LINE__ - 1;
  CHECK(contains(twice, "subgroup: rank 0 is listed twice"));
  CHECK(contains(twice, fmt::format("comm_check_test.cpp:{}", line)));
  if (world.size() == 1) return;
  const std::string differing = refusal([&] { world.subgroup({{world.rank()}}); });
  CHECK(contains(differing, "subgroup: the ranks give different lists of groups"));
  CHECK(contains(differing, fmt::format("comm_check_test.cpp:{}", line + 5)));
}

TEST_CASE("messages of the check are no messages of the program") {
  const Communicator world = test_world();
  const auto sent_by = [&](bool checked) {
    world.set_check_calls(checked);
    const Recorder::Totals before = world.recorder().totals();
    all_reduces(world, {5});
    movements(world);
    check_same(world, "the same words");
    const Recorder::Totals after = world.recorder().totals();
    world.set_check_calls(false);
    return std::vector<std::int64_t>{after.calls - before.calls, after.messages - before.messages,
                                     after.bytes - before.bytes};
  };
  const Recorder& checks = world.group()->endpoint().checks;
  const std::vector<std::int64_t> plain = sent_by(false);
  const std::int64_t before = checks.totals().messages;
  CHECK(sent_by(true) == plain);
  const std::int64_t extra = checks.totals().messages - before;
  // One for every call, and check_same says its words besides.
  CHECK(extra == (world.size() > 1 ? plain[0] + 2 : 0));
}
