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

#include "comm/group.h"
#include "comm/mpi.h"
#include "comm/mpi_transport.h"
#include "runtime/threads.h"
#include "tests/comm_cases.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

HostChannel::Options small_rings(std::int64_t capacity, std::int64_t longest) {
  HostChannel::Options options;
  options.capacity = capacity;
  options.longest = longest;
  options.wanted = true;
  return options;
}

Communicator with_options(const HostChannel::Options& options) {
  return Communicator(make_world_group(std::make_unique<MpiTransport>(MPI_COMM_WORLD, options)));
}

const MpiTransport& transport_of(const Communicator& comm) {
  return dynamic_cast<const MpiTransport&>(comm.group()->transport());
}
const HostChannel& channel_of(const Communicator& comm) { return transport_of(comm).channel(); }

// Whether processes of this host may open each other's memory at all: where it is locked (a seccomp filter, a
// /proc that hides processes) MPI must carry everything, and the cases look at that.
bool host_lets_share() {
  static const bool lets = [] {
    long at[2] = {getpid(), -1};
    const int file = memfd_create("tessera-test", MFD_CLOEXEC);
    at[1] = file;
    MPI_Bcast(at, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    const std::string path = "/proc/" + std::to_string(at[0]) + "/fd/" + std::to_string(at[1]);
    const int opened = at[1] < 0 ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC);
    int all = opened >= 0 ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (const int f : {file, opened})
      if (f >= 0) close(f);
    if (all == 0) WARN("this host lets no process see another's memory: the rings are not tested");
    return all == 1;
  }();
  return lets;
}

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

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// One exchange of the storm: every ordered pair of the group has its length and its bytes.
class Exchange {
 public:
  Exchange(const Communicator& comm, std::int64_t limit, std::uint64_t number)
      : comm_(comm), limit_(limit), number_(number) {
    for (int r = 0; r < comm.size(); ++r) {
      out_.emplace_back(static_cast<std::size_t>(length(comm.rank(), r)));
      for (std::size_t i = 0; i < out_.back().size(); ++i) out_.back()[i] = byte(comm.rank(), r, i);
      in_.emplace_back(static_cast<std::size_t>(length(r, comm.rank())), static_cast<unsigned char>(0xee));
    }
  }

  void start() {
    std::vector<SendBuffer> sends;
    std::vector<RecvBuffer> recvs;
    for (int r = 0; r < comm_.size(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      sends.push_back(
          {r, out_[k].data(), static_cast<std::int64_t>(out_[k].size()), seed(comm_.rank(), r) % 3 == 0});
      elsewhere_.push_back((number_ + k) % 2 == 0 ? nullptr : std::make_shared<Elsewhere>(in_[k].size()));
      recvs.push_back({r, in_[k].data(), static_cast<std::int64_t>(in_[k].size()), elsewhere_.back()});
    }
    work_ = comm_.exchange(sends, recvs);
  }

  void finish() {
    work_.wait();
    for (int r = 0; r < comm_.size(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      const unsigned char* data = in_[k].data();
      if (elsewhere_[k]) data = elsewhere_[k]->where(data);
      for (std::size_t i = 0; i < in_[k].size(); ++i)
        expect(data[i] == byte(r, comm_.rank(), i), "byte {} from rank {} of exchange {}", i, r, number_);
    }
  }

 private:
  std::uint64_t seed(int from, int to) const {
    return mixed(test_seed() + number_ * 1000 + static_cast<std::uint64_t>(from * 31 + to));
  }
  // None, short, around the limits of a line, of the channel, or far beyond.
  std::int64_t length(int from, int to) const {
    const std::uint64_t s = seed(from, to);
    const auto little = static_cast<std::int64_t>((s >> 8U) % 5) - 2;
    const auto any = static_cast<std::int64_t>((s >> 16U) % static_cast<std::uint64_t>(3 * limit_));
    const std::int64_t lengths[] = {0,   46 + little, 64 + little,         limit_ + little,
                                    any, any / 8,     2 * limit_ + little, 9 * any / 2};
    return std::max<std::int64_t>(lengths[s % 8], 0);
  }
  unsigned char byte(int from, int to, std::size_t i) const {
    return static_cast<unsigned char>((seed(from, to) >> 40U) + i * 7);
  }

  Communicator comm_;
  std::int64_t limit_;
  std::uint64_t number_;
  std::vector<std::vector<unsigned char>> out_;
  std::vector<std::vector<unsigned char>> in_;
  std::vector<std::shared_ptr<Elsewhere>> elsewhere_;
  Work work_;
};

// Exchanges of several groups, up to `under_way` of them started and not waited for; which one is waited for
// next is another one on every rank.
void storm(const Communicator& comm, std::int64_t limit, int exchanges, std::size_t under_way) {
  std::vector<int> backwards(static_cast<std::size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) backwards[static_cast<std::size_t>(r)] = comm.size() - 1 - r;
  const Communicator groups[] = {comm, comm.subgroup({backwards}), comm.split(comm.rank() % 2, comm.rank()),
                                 comm.split(comm.rank() / 2, comm.rank())};
  auto shared = test_random(5);
  std::mt19937_64 own(test_seed() + static_cast<std::uint64_t>(comm.rank()));
  std::vector<std::unique_ptr<Exchange>> open;
  auto finish_one = [&] {
    const auto k = static_cast<std::size_t>(own() % open.size());
    open[k]->finish();
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
  };
  for (int i = 0; i < exchanges; ++i) {
    const auto which = static_cast<std::size_t>(random_int(shared, 0, 3));
    open.push_back(std::make_unique<Exchange>(groups[which], limit, static_cast<std::uint64_t>(i)));
    open.back()->start();
    if (open.size() >= under_way) finish_one();
  }
  while (!open.empty()) finish_one();
}

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
  comm.set_message_limit(1100);  // pieces go by MPI, the rest through the ring
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
  const auto rings = static_cast<rlim_t>(ring_bytes(options.capacity) * size * size);
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
