// Ranks as threads, a rank that only records, and what happens when a rank fails or is missing.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/group.h"
#include "comm/virtual.h"
#include "tests/comm_cases.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One of two ranks, alone: what the other sends is zeros, and is there when a wait has slept three times.
class SleepyTransport : public Transport {
 public:
  static constexpr double kSeconds = 3e-3;
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void post_send(const Message&, Ticket* ticket) override { ticket->complete(); }
  void post_recv(const Message& message, Ticket* ticket) override {
    std::memset(message.data, 0, static_cast<std::size_t>(message.bytes));
    coming_ = ticket;
    sleeps_ = 0;
  }
  void poll() override {}
  void cancel(Ticket*) override { coming_ = nullptr; }
  void idle(int) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (++sleeps_ == 3 && coming_ != nullptr) std::exchange(coming_, nullptr)->complete();
  }

 private:
  Ticket* coming_ = nullptr;
  int sleeps_ = 0;
};

}  // namespace

TEST_CASE("what a call waits for is counted once, where it begins or where it is waited for") {
  const Communicator comm(make_world_group(std::make_unique<SleepyTransport>()));
  comm.set_check_calls(false);
  const Array array = Array::zeros({5}, DType::F32);
  const auto exchange = [&] {
    const std::vector<SendBuffer> sends{{1, array.raw(), 4}};
    const std::vector<RecvBuffer> recvs{{1, array.raw(), 4}};
    return comm.exchange(sends, recvs);
  };
  for (const bool overlap : {true, false}) {
    INFO("overlap " << overlap);
    comm.set_overlap(overlap);
    for (const bool collective : {true, false}) {
      INFO("collective " << collective);
      const double before = comm.recorder().totals().seconds;
      const double all =
          seconds_of([&] { (collective ? comm.all_reduce(array, ReduceOp::Sum) : exchange()).wait(); });
      const double counted = comm.recorder().totals().seconds - before;
      CHECK(counted >= SleepyTransport::kSeconds);
      CHECK(counted <= all);
    }
  }
}

TEST_CASE("virtual ranks do what MPI ranks do") {
  const int ranks = GENERATE(1, 2, 3, 5, 9, 12);
  CAPTURE(ranks);
  run_virtual_ranks(ranks, [](const Communicator& comm) {
    random_exchanges(comm, 5, 2000);
    all_reduces(comm, {0, 3, 4000});
    reduce_scatters(comm);
    movements(comm);
    strided_arrays(comm);
    host_values(comm);
    interleaved_groups(comm);
    comm.set_message_limit(1000);
    random_exchanges(comm, 3, 5000);
    all_reduces(comm, {2999});
  });
}

TEST_CASE("64 virtual ranks") {
  std::atomic<int> sum{0};
  run_virtual_ranks(64, [&](const Communicator& comm) {
    expect(comm.size() == 64, "{} ranks", comm.size());
    expect(rank_label().rank == comm.rank(), "label {}", rank_label().rank);
    random_exchanges(comm, 1, 20);
    const Array one = Array::full({1}, 1.0, DType::F32);
    comm.all_reduce(one, ReduceOp::Sum).wait();
    comm.barrier();
    sum += static_cast<int>(one.at(0));
  });
  CHECK(sum == 64 * 64);
}

TEST_CASE("a rank that throws ends the waits of the others with its name") {
  std::atomic<int> told{0};
  const auto run = [&] {
    run_virtual_ranks(4, [&](const Communicator& comm) {
      if (comm.rank() == 2) TS_FAIL(Io, "reader", "disk full");
      try {
        comm.barrier();
      } catch (const Error& e) {
        if (contains(e.message(), "rank 2 failed: reader: disk full")) ++told;
        throw;
      }
    });
  };
  const double seconds = seconds_of([&] { CHECK(message_of(run) == "reader: disk full"); });
  CHECK(told == 3);
  CHECK(seconds < 5);
  CHECK_THROWS_WITH(run_virtual_ranks(3,
                                      [](const Communicator& comm) {
                                        if (comm.rank() > 0)
                                          throw std::runtime_error(fmt::format("number {}", comm.rank()));
                                        comm.barrier();
                                      }),
                    "number 1");
}

TEST_CASE("a rank that returns early is named to those who wait for it") {
  const auto run = [](bool sends) {
    run_virtual_ranks(3, [&](const Communicator& comm) {
      if (comm.rank() == 2) return;
      const Array data = Array::zeros({10}, DType::F32);
      const SendBuffer send{2, data.raw(), data.nbytes()};
      if (sends && comm.rank() == 1) comm.exchange({&send, 1}, {}).wait();
      comm.barrier();
    });
  };
  const double seconds = seconds_of([&] {
    CHECK(contains(message_of([&] { run(false); }),
                   "barrier: rank 2 of 3 has ended its run and will not take part"));
    CHECK(contains(message_of([&] { run(true); }), "rank 2 of 3 has ended its run and will not take part"));
  });
  CHECK(seconds < 20);
}

TEST_CASE("many works for a rank that returned early are given up together") {
  const auto run = [](bool waits) {
    run_virtual_ranks(3, [&](const Communicator& comm) {
      if (comm.rank() == 2) return;
      std::vector<Array> arrays;
      std::vector<Work> works;
      for (int i = 0; i < 20; ++i) {
        arrays.push_back(Array::zeros({10}, DType::F32));
        works.push_back(comm.all_reduce(arrays.back(), ReduceOp::Sum));
      }
      if (waits) works.front().wait();
    });
  };
  const double seconds = seconds_of([&] {
    for (const bool waits : {true, false})
      CHECK(contains(message_of([&] { run(waits); }),
                     "all_reduce: rank 2 of 3 has ended its run and will not take part"));
  });
  CHECK(seconds < 15);
}

TEST_CASE("works that are dropped by an exception do not hold up the end") {
  const double seconds = seconds_of([] {
    CHECK_THROWS_WITH(run_virtual_ranks(3,
                                        [](const Communicator& comm) {
                                          const Array array = Array::zeros({100'000}, DType::F32);
                                          std::vector<Work> works(20);
                                          for (Work& work : works)
                                            if (comm.rank() != 2)
                                              work = comm.all_reduce(array, ReduceOp::Sum);
                                          if (comm.rank() == 1) throw std::runtime_error("alone");
                                          comm.barrier();
                                        }),
                      "alone");
  });
  CHECK(seconds < 5);
}

TEST_CASE("a missing rank is reported when the deadline passes") {
  const double seconds = seconds_of([] {
    std::atomic<int> refused{0};
    run_virtual_ranks(3, [&](const Communicator& comm) {
      while (comm.rank() == 1 && refused < 2) std::this_thread::yield();
      if (comm.rank() == 1) return;
      comm.set_deadline(0.3);
      expect(comm.deadline() == 0.3, "{}", comm.deadline());
      const Array array = Array::zeros({8}, DType::F32);
      Work work = comm.all_reduce(array, ReduceOp::Sum);
      const std::string text = message_of([&] { work.wait(); });
      ++refused;
      expect(contains(text, "all_reduce: waited 0.3 s in a group of 3"), "{}", text);
      expect(contains(text, "for messages from rank 1 and for rank 1 to take messages"), "{}", text);
      expect(contains(text, "comm_virtual_test.cpp:"), "{}", text);
    });
  });
  CHECK(seconds > 0.25);
  CHECK(seconds < 5);
}

TEST_CASE("the check of calls works on virtual ranks") {
  std::atomic<int> told{0};
  run_virtual_ranks(5, [&](const Communicator& comm) {
    comm.set_check_calls(true);
    const Array array = Array::zeros({comm.rank() == 3 ? 2 : 1}, DType::I64);
    const std::string text = message_of([&] { comm.all_reduce(array, ReduceOp::Sum); });
    if (contains(text, "rank 3 calls all_reduce of i64 [2]")) ++told;
  });
  CHECK(told == 5);
}

TEST_CASE("a recording communicator counts and moves nothing") {
  const Communicator comm = recording_communicator(5, 16);
  CHECK(comm.rank() == 5);
  CHECK(comm.size() == 16);
  comm.recorder().start();
  const Array meta = Array::zeros({1 << 20, 64}, DType::F32, Device::Meta);
  comm.all_reduce(meta, ReduceOp::Sum).wait();
  const Array kept = Array::full({4}, 7.0, DType::F32);
  comm.all_reduce(kept, ReduceOp::Sum).wait();
  CHECK(kept.at(0) == 7.0);
  const std::vector<SendBuffer> sends{{4, nullptr, 100}, {5, nullptr, 3}, {6, nullptr, 200}};
  const std::vector<RecvBuffer> recvs{{5, nullptr, 3}, {6, nullptr, 50}};
  CHECK(comm.exchange(sends, recvs).done());
  const Communicator row = comm.subgroup({{4, 5, 6, 7}, {0, 1, 2, 3}});
  CHECK(row.rank() == 1);
  row.barrier();
  CHECK(comm.all_gather_bytes("x") == std::vector<std::string>(16, "x"));
  agree(comm, "reader", "");
  comm.recorder().stop();
  const Recorder& recorder = comm.recorder();
  CHECK(recorder.bytes("all_reduce") == (std::int64_t{256} << 20) + 16);
  CHECK(recorder.bytes("exchange") == 300);
  CHECK(recorder.records()[2].messages == 2);
  CHECK(recorder.count("subgroup") == 1);
  CHECK(recorder.count("barrier") == 1);
  CHECK(recorder.count("all_gather_bytes") == 1);
  CHECK(recorder.count("agree") == 1);
  CHECK(contains(message_of([&] { comm.split(0, 0); }), "use subgroup"));
}
