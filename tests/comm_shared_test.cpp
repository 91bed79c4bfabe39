// Ranks of one host over shared memory: lengths around the limits, rings that are full, many exchanges under
// way, and MPI where there is no shared memory.
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>

#include "comm/first_failure.h"
#include "comm/group.h"
#include "comm/mpi.h"
#include "comm/mpi_transport.h"
#include "runtime/threads.h"
#include "tests/comm_storm.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

// Files of this process get no longer.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

// All ranks on one core, which is the first that rank 0 may run on.
class OneCore {
 public:
  OneCore() {
    REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
    int core = 0;
    while (CPU_ISSET(core, &before_) == 0) ++core;
    MPI_Bcast(&core, 1, MPI_INT, 0, MPI_COMM_WORLD);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace

TEST_CASE("many exchanges of several groups, lengths around the limits, waited for in any order") {
  const HostChannel::Options usual = small_rings(std::int64_t{1} << 20, std::int64_t{1} << 18);
  const Communicator comm = with_options(usual);
  CHECK(channel_of(comm).is_open() == (host_lets_share() && comm.size() > 1));
  storm(comm, usual.longest, 40, 12);
  storm(with_options(small_rings(1 << 16, 3000)), 3000, 400, 24);
  storm(with_options(small_rings(1 << 13, 2000)), 2000, 400, 24);  // always full
  storm(with_options(small_rings(512, 100)), 100, 400, 24);
  storm(with_options(small_rings(512, 0)), 100, 200, 24);  // nothing but announcements, of which 7 find room
}

TEST_CASE("some ranks are on this host, others are not") {
  for (const int parts : {2, 3}) {
    HostChannel::Options options = small_rings(1 << 13, 2000);
    options.part = test_world().rank() % parts;
    const Communicator comm = with_options(options);
    CHECK(channel_of(comm).is_open() == (host_lets_share() && comm.size() >= parts + 1 + options.part));
    storm(comm, options.longest, 200, 24);
    all_reduces(comm, {1, 999, 20000});
  }
}

TEST_CASE("pieces of one message keep their order, whichever way they go") {
  const Communicator comm = with_options(small_rings(1 << 13, 1000));
  comm.set_message_limit(1100);  // pieces are read or go by MPI, the rest through the ring
  storm(comm, 1000, 60, 8);
  all_reduces(comm, {1, 999, 20000});
  movements(comm);
}

TEST_CASE("a full ring keeps nobody from going on") {
  const Communicator comm = with_options(small_rings(1024, 256));
  if (comm.size() < 2) return;
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  constexpr int kMessages = 500;
  constexpr std::int64_t kBytes = 200;  // three or four of them fill a ring
  std::vector<std::vector<int>> out;
  std::vector<std::vector<int>> in;
  std::vector<Work> works;
  for (int i = 0; i < kMessages; ++i) {
    out.emplace_back(kBytes / sizeof(int), comm.rank() * kMessages + i);
    in.emplace_back(kBytes / sizeof(int), -1);
  }
  // All are sent before anything is received, and the last one is waited for first.
  for (int i = 0; i < kMessages; ++i) {
    const SendBuffer send{to, out[static_cast<std::size_t>(i)].data(), kBytes};
    const RecvBuffer recv{from, in[static_cast<std::size_t>(i)].data(), kBytes};
    works.push_back(comm.exchange({&send, 1}, {&recv, 1}));
  }
  while (!works.empty()) {
    works.back().wait();
    works.pop_back();
  }
  for (int i = 0; i < kMessages; ++i)
    CHECK(in[static_cast<std::size_t>(i)] == std::vector<int>(kBytes / sizeof(int), from * kMessages + i));
}

TEST_CASE("a send that finds no room is told by the deadline, and can be given up") {
  const Communicator comm = with_options(small_rings(1024, 256));
  if (comm.size() < 2 || !host_lets_share()) return;
  std::vector<char> data(200);
  if (comm.rank() == 0) {
    comm.set_deadline(0.3);
    const SendBuffer send{1, data.data(), 200};
    for (int i = 0; i < 3; ++i) comm.exchange({&send, 1}, {}).wait();  // done at once
    const std::string text = message_of([&] { comm.exchange({&send, 1}, {}).wait(); });
    CHECK(contains(text, "for rank 1 to take messages"));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("lengths that differ between sender and receiver are an error on either side of the limit") {
  constexpr std::int64_t kLimit = 1000;
  const std::pair<std::int64_t, std::int64_t> cases[] = {
      {20, 30}, {100, 900}, {900, 100}, {500, 50'000}, {50'000, 500}, {40'000, 50'000}, {50'000, 40'000}};
  for (const auto& [sent, expected] : cases) {
    const Communicator comm = with_options(small_rings(1 << 13, kLimit));
    if (comm.size() < 2) return;
    comm.set_deadline(20);
    std::vector<char> data(50'000);
    if (comm.rank() == 1) {
      const RecvBuffer recv{0, data.data(), expected};
      const std::string text = message_of([&] { comm.exchange({}, {&recv, 1}).wait(); });
      INFO(sent << " bytes to " << expected << ": " << text);
      CHECK(contains(text, "message from rank 0 failed: "));
      CHECK((sent > expected ||
             contains(text, fmt::format("{} bytes came, but {} were expected", sent, expected))));
    } else if (comm.rank() == 0) {
      const SendBuffer send{1, data.data(), sent};
      comm.exchange({&send, 1}, {}).wait();
    } else {
      comm.exchange({}, {}).wait();
    }
    comm.barrier();
  }
}

TEST_CASE("a message is there before its receiver looks, and its sender is done") {
  const Communicator comm = with_options(small_rings(std::int64_t{1} << 19, std::int64_t{1} << 17));
  if (comm.size() < 2 || !host_lets_share()) return;
  std::vector<char> data(100'000, static_cast<char>(comm.rank()));
  if (comm.rank() == 0) {
    const SendBuffer send{1, data.data(), 100'000};
    CHECK(comm.exchange({&send, 1}, {}).done());  // rank 1 is not in any call
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(comm.exchange({&send, 1}, {}).done());
    MPI_Barrier(MPI_COMM_WORLD);
  } else if (comm.rank() == 1) {
    MPI_Barrier(MPI_COMM_WORLD);
    const RecvBuffer recv{0, data.data(), 100'000};
    CHECK(comm.exchange({}, {&recv, 1}).done());  // one look is enough
    CHECK(std::all_of(data.begin(), data.end(), [](char c) { return c == 0; }));
    MPI_Barrier(MPI_COMM_WORLD);
    const auto elsewhere = std::make_shared<Elsewhere>(100'000);
    const RecvBuffer placed{0, data.data(), 100'000, elsewhere};
    CHECK(comm.exchange({}, {&placed, 1}).done());
    CHECK(elsewhere->was_called());  // straight from the ring
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("one rank that does not want shared memory is enough, and so are too many ranks") {
  const int size = test_world().size();
  for (int unwilling = 0; unwilling < size; ++unwilling) {
    HostChannel::Options options = small_rings(1 << 13, 1000);
    options.wanted = test_world().rank() != unwilling;
    const Communicator comm = with_options(options);
    CHECK_FALSE(channel_of(comm).is_open());
    storm(comm, 1000, 40, 8);
  }
  HostChannel::Options options = small_rings(1 << 13, 1000);
  options.most_ranks = std::max(size - 1, 1);
  const Communicator comm = with_options(options);
  CHECK_FALSE(channel_of(comm).is_open());
  storm(comm, 1000, 40, 8);
}

TEST_CASE("rings that are longer than files may be are done without") {
  const HostChannel::Options options = small_rings(1 << 13, 1000);
  auto opened = [&](rlim_t limit) {
    const FileLimit limited(limit);
    return with_options(options);
  };
  const int size = test_world().size();
  const auto rings = static_cast<rlim_t>(HostChannel::bytes_of_pair(options) * size * size);
  CHECK(channel_of(opened(rings + 8)).is_open() == (host_lets_share() && size > 1));
  const Communicator comm = opened(rings);  // the mark behind them finds no room
  CHECK_FALSE(channel_of(comm).is_open());
  storm(comm, 1000, 40, 8);
}

TEST_CASE("ranks that may all run on one core only do not keep it while they wait") {
  const OneCore bound;
  const Communicator comm = with_options(small_rings(1 << 13, 1000));
  CHECK(transport_of(comm).has_own_core() == (comm.size() == 1));
}

TEST_CASE("the switch in the environment") {
  const char* before = std::getenv("TESSERA_SHARED_MEMORY");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TESSERA_SHARED_MEMORY", "0", 1);
  CHECK_FALSE(HostChannel::wanted_by_environment());
  setenv("TESSERA_SHARED_MEMORY", "1", 1);
  CHECK(HostChannel::wanted_by_environment());
  unsetenv("TESSERA_SHARED_MEMORY");
  CHECK(HostChannel::wanted_by_environment());
  if (before != nullptr) setenv("TESSERA_SHARED_MEMORY", kept.c_str(), 1);
}

TEST_CASE("what is recorded does not depend on the way that messages go") {
  std::vector<Recorder> recorders;
  for (const bool wanted : {true, false}) {
    HostChannel::Options options = small_rings(1 << 13, 1000);
    options.wanted = wanted;
    const Communicator comm = with_options(options);
    comm.recorder().start();
    random_exchanges(comm, 10, 3000);
    all_reduces(comm, {1, 999, 20000});
    recorders.push_back(comm.recorder());
  }
  const auto& shared = recorders[0].records();
  const auto& mpi = recorders[1].records();
  REQUIRE(shared.size() == mpi.size());
  for (std::size_t i = 0; i < shared.size(); ++i) {
    CHECK(shared[i].kind == mpi[i].kind);
    CHECK(shared[i].messages == mpi[i].messages);
    CHECK(shared[i].bytes == mpi[i].bytes);
  }
}

TEST_CASE("the transport tells how many ranks share this host") {
  CHECK(ranks_on_this_host(test_world()) == test_world().size());
  CHECK(cores_of_this_host(test_world()) >= available_cores());
  CHECK(ranks_on_this_host(test_world().split(test_world().rank() % 2, 0)) == test_world().size());
}

namespace {

// How many of the ranks are answered so; the question is asked once by each.
int answered(FirstFailure& failure, FirstFailure::Speaker speaker) {
  int count = failure.ask() == speaker ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return count;
}

}  // namespace

TEST_CASE("of ranks that fail one speaks, whichever asks first") {
  using Speaker = FirstFailure::Speaker;
  const int size = test_world().size();
  for (int first = 0; first < size && host_lets_share(); ++first) {
    FirstFailure failure(MPI_COMM_WORLD, true);
    if (test_world().rank() == first) CHECK(failure.ask() == Speaker::This);
    test_world().barrier();
    CHECK(answered(failure, Speaker::Another) == size);
  }
  for (int repeat = 0; repeat < 50 && host_lets_share(); ++repeat) {  // all at once
    FirstFailure failure(MPI_COMM_WORLD, true);
    CHECK(answered(failure, Speaker::This) == 1);
    CHECK(answered(failure, Speaker::This) == 0);
  }
}

TEST_CASE("where ranks that fail share nothing, it is not known which of them came first") {
  using Speaker = FirstFailure::Speaker;
  const int size = test_world().size();
  FirstFailure none;
  CHECK(answered(none, Speaker::Unknown) == size);
  FirstFailure unwanted(MPI_COMM_WORLD, test_world().rank() > 0);  // by one rank
  CHECK(answered(unwanted, Speaker::Unknown) == size);
  if (!host_lets_share()) return;
  for (const Speaker speaker : {Speaker::This, Speaker::Unknown, Speaker::Another}) {
    FirstFailure hosts(MPI_COMM_WORLD, true, test_world().rank() % 2);
    const int elsewhere = size > 1 ? 1 : 0;  // the first of the host that is not rank 0's
    const int others = size - 1 - elsewhere;
    const int expected = speaker == Speaker::This ? 1 : speaker == Speaker::Unknown ? elsewhere : others;
    CHECK(answered(hosts, speaker) == expected);
  }
}
