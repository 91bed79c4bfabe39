// Long messages within a host, which their receivers read from the senders' memory.
#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/comm_storm.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

TEST_CASE("ranks that may not read each other's memory let MPI carry long messages") {
  const int size = test_world().size();
  for (int unable = 0; unable < size; ++unable) {
    HostChannel::Options options = small_rings(1 << 13, 2000);
    options.may_read = test_world().rank() != unable;
    const Communicator comm = with_options(options);
    CHECK_FALSE(channel_of(comm).reads_peers());
    CHECK(channel_of(comm).is_open() == (host_lets_share() && size > 1));
    storm(comm, options.longest, 100, 24);
  }
}

TEST_CASE("a long message is read from its sender's memory, whose sender is done afterwards") {
  const Communicator comm = with_options(small_rings(std::int64_t{1} << 19, std::int64_t{1} << 17));
  if (!channel_of(comm).reads_peers()) return;
  for (const auto& [bytes, at_once] : {std::pair{300'000, false}, {300'000, true}, {70'000, true}}) {
    std::vector<char> data(static_cast<std::size_t>(bytes), static_cast<char>(comm.rank()));
    if (comm.rank() == 0) {
      const SendBuffer send{1, data.data(), bytes, false, at_once};
      Work work = comm.exchange({&send, 1}, {});
      CHECK_FALSE(work.done());
      data.back() = 77;  // nothing was copied yet
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
      CHECK(work.done());
    } else {
      MPI_Barrier(MPI_COMM_WORLD);
      if (comm.rank() == 1) {
        const RecvBuffer recv{0, data.data(), bytes};
        CHECK(comm.exchange({}, {&recv, 1}).done());  // one look is enough
        CHECK(std::count(data.begin(), data.end(), 0) == bytes - 1);
        CHECK(data.back() == 77);
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
}

TEST_CASE("more messages are offered than there are slots") {
  const Communicator comm = with_options(small_rings(1 << 13, 1000));
  if (comm.size() < 2) return;
  constexpr int kMessages = 3 * Offers::kSlots;
  constexpr std::int64_t kBytes = 4000;
  std::vector<std::vector<int>> data;
  std::vector<Work> works;
  for (int i = 0; i < kMessages; ++i) data.emplace_back(kBytes / sizeof(int), comm.rank() == 0 ? i : -1);
  for (auto& d : data) {
    const SendBuffer send{1, d.data(), kBytes};
    const RecvBuffer recv{0, d.data(), kBytes};
    if (comm.rank() == 0) works.push_back(comm.exchange({&send, 1}, {}));
    if (comm.rank() == 1) works.push_back(comm.exchange({}, {&recv, 1}));
    if (comm.rank() > 1) works.push_back(comm.exchange({}, {}));
  }
  while (!works.empty()) {  // the last one first: all others are set aside
    works.back().wait();
    works.pop_back();
  }
  for (int i = 0; i < kMessages && comm.rank() < 2; ++i)
    CHECK(data[static_cast<std::size_t>(i)] == std::vector<int>(kBytes / sizeof(int), i));
}

TEST_CASE("memory that is gone when its receiver reads it is an error on both sides") {
  const Communicator comm = with_options(small_rings(1 << 13, 1000));
  if (!channel_of(comm).reads_peers()) return;
  constexpr std::int64_t kBytes = 1 << 16;
  std::vector<char> data(kBytes);
  if (comm.rank() == 0) {
    void* gone = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(gone != MAP_FAILED);
    const SendBuffer send{1, gone, kBytes};
    CHECK(contains(message_of([&] { comm.exchange({&send, 1}, {}).wait(); }), "could not read"));
    munmap(gone, kBytes);
  } else if (comm.rank() == 1) {
    const RecvBuffer recv{0, data.data(), kBytes};
    CHECK(contains(message_of([&] { comm.exchange({}, {&recv, 1}).wait(); }), "could not be read"));
  } else {
    comm.exchange({}, {}).wait();
  }
  storm(comm, 1000, 40, 8);
}

TEST_CASE("what its sender gave up is an error for its receiver, whatever lies there by then") {
  const Communicator comm = with_options(small_rings(1 << 13, 1000));
  if (!channel_of(comm).reads_peers()) return;
  const Communicator abandoned = comm.split(0, comm.rank());
  constexpr std::int64_t kBytes = 1 << 16;
  constexpr int kMessages = 4;
  std::vector<char> data(kBytes, 1);
  if (comm.rank() == 0) {
    {
      const Deadline soon(abandoned, 0.05);
      const SendBuffer send{1, data.data(), kBytes};
      std::vector<Work> works;
      for (int i = 0; i < kMessages; ++i) works.push_back(abandoned.exchange({&send, 1}, {}));
      for (Work& work : works)
        CHECK(contains(message_of([&] { work.wait(); }), "for rank 1 to take messages"));
    }
    std::fill(data.begin(), data.end(), static_cast<char>(2));  // it is this rank's again
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kMessages && comm.rank() == 1; ++i) {
      const RecvBuffer recv{0, data.data(), kBytes};
      CHECK(contains(message_of([&] { abandoned.exchange({}, {&recv, 1}).wait(); }), "its sender gave up"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  storm(comm, 1000, 100, 24);
}
