// The exchange under MPI: lists, refusals, sub-groups, the message limit, host communicators.
#include <mpi.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <source_location>

#include "comm/mpi.h"
#include "comm/work_state.h"
#include "runtime/progress.h"
#include "tests/comm_cases.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

TEST_CASE("random exchanges arrive byte for byte") {
  random_exchanges(test_world(), 20, 300);
  random_exchanges(test_world(), 4, 200'000);
}

TEST_CASE("long messages are split on both sides") {
  const Communicator world = test_world();
  world.set_message_limit(1000);
  random_exchanges(world, 10, 5000);
  all_reduces(world, {1, 999, 20000});
  movements(world);
  world.set_message_limit(std::int64_t{1} << 30);
}

TEST_CASE("without overlap a communication is over when its call returns") {
  const Communicator world = test_world();
  CHECK(world.overlaps());
  world.set_overlap(false);
  random_exchanges(world, 10, 3000);
  all_reduces(world, {1, 999, 20000});
  movements(world);
  const Array x = Array::full({50000}, 1.0, DType::F64);
  Work work = world.all_reduce(x, ReduceOp::Sum);
  CHECK(x.at(0) == world.size());  // nobody has waited
  CHECK(work.done());
  world.set_overlap(true);
}

TEST_CASE("a neighbour on both sides gets one message") {
  const Communicator world = test_world();
  const int size = world.size();
  const int rank = world.rank();
  // A periodic axis: both halos of the left and the right neighbour travel together when these are the same
  // rank.
  const int left = (rank + size - 1) % size;
  const int right = (rank + 1) % size;
  std::vector<int> out(4, rank);
  std::vector<int> in(4, -1);
  std::vector<SendBuffer> sends{{left, out.data(), 8}};
  std::vector<RecvBuffer> recvs{{right, in.data(), 8}};
  if (left == right) {
    sends[0].bytes = recvs[0].bytes = 16;
  } else {
    sends.push_back({right, out.data() + 2, 8});
    recvs.push_back({left, in.data() + 2, 8});
  }
  world.recorder().start();
  world.exchange(sends, recvs).wait();
  world.recorder().stop();
  CHECK(in == std::vector<int>{right, right, left, left});
  if (size == 1) {
    CHECK(world.recorder().records().empty());
  } else {
    REQUIRE(world.recorder().count("exchange") == 1);
    CHECK(world.recorder().records()[0].messages == (size == 2 ? 1 : 2));
    CHECK(world.recorder().bytes("exchange") == 16);
  }
}

TEST_CASE("wrong exchange lists are refused at the caller's line") {
  const Communicator world = test_world();
  const int size = world.size();
  char byte = 0;
  const std::vector<SendBuffer> twice{{0, &byte, 1}, {0, &byte, 1}};
  CHECK(contains(message_of([&] { world.exchange(twice, {}); }), "names rank 0 twice"));
  const std::vector<RecvBuffer> nobody{{size, &byte, 1}};
  CHECK(contains(message_of([&] { world.exchange({}, nobody); }),
                 fmt::format("rank {} in a group of {}", size, size)));
  const std::vector<SendBuffer> to_self{{world.rank(), &byte, 1}};
  CHECK(contains(message_of([&] { world.exchange(to_self, {}); }), "sends itself 1 bytes but receives 0"));
  try {
    world.exchange(twice, {});
  } catch (const Error& e) {
    CHECK(contains(e.what(), "comm_exchange_test.cpp"));
  }
  const Communicator none;
  CHECK(contains(message_of([&] { none.barrier(); }), "undefined"));
}

TEST_CASE("a message of another length than expected is an error that names the peer") {
  const Communicator world = test_world();
  if (world.size() < 2) return;
  std::vector<char> data(200);
  const std::vector<SendBuffer> sends{{1, data.data(), 100}};
  const std::vector<RecvBuffer> recvs{{0, data.data(), 120}};
  if (world.rank() == 1) {
    const std::string text = message_of([&] { world.exchange({}, recvs).wait(); });
    CHECK(contains(text, "message from rank 0 failed: 100 bytes came, but 120 were expected"));
  } else if (world.rank() == 0) {
    world.exchange(sends, {}).wait();
  } else {
    world.exchange({}, {}).wait();
  }
  world.barrier();
}

TEST_CASE("several groups are under way at once") {
  const Communicator world = test_world();
  interleaved_groups(world);
  const std::uint64_t calls = static_cast<std::uint64_t>(world.recorder().totals().calls);
  CHECK(calls > 0);
}

TEST_CASE("groups come and go without using up the contexts") {
  const Communicator world = test_world();
  for (int i = 0; i < 2500; ++i) {
    const Communicator group = group_of_all(world);
    if (i % 500 == 0) random_exchanges(group, 3, 100);
  }
}

TEST_CASE("messages move while kernels poll") {
  const Communicator world = test_world();
  if (world.size() == 1) return;
  REQUIRE(progress_function() == nullptr);
  const Array array = contribution(world.rank(), {100'000}, DType::F32);
  Work work = world.all_reduce(array, ReduceOp::Sum);
  for (int i = 0; i < 10'000'000 && progress_function() != nullptr; ++i) poll_progress();
  CHECK(progress_function() == nullptr);  // the work finished without a wait
  CHECK(work.done());
  CHECK(equal(array, reduced(world.size(), array.sizes(), DType::F32, ReduceOp::Sum)));
}

TEST_CASE("kernels that poll within a step of one message do not run the steps of others") {
  const Communicator world = test_world();
  const int last = world.size() - 1;
  if (last == 0) return;
  constexpr std::int64_t kBytes = 100'000;
  constexpr int kTag = 77;
  char word = 0;
  std::vector<char> late(kBytes, world.rank() == last ? 1 : 0);
  const SendBuffer send{0, late.data(), kBytes};
  const RecvBuffer recv{last, late.data(), kBytes};
  auto step = std::make_shared<Work::State>(world.group(), Call{"test", std::source_location::current()});
  Phase& phase = step->add_phase(0);
  if (world.rank() == last) {
    phase.send(0, &word, 1);
    step->start();
    step->wait();
    MPI_Recv(&word, 1, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    Work work = world.exchange({&send, 1}, {});
    MPI_Send(&word, 1, MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
    work.wait();
    return;
  }
  Work other = world.exchange({}, {&recv, static_cast<std::size_t>(world.rank() == 0)});
  bool finished_within = true;
  if (world.rank() == 0) {
    phase.recv(last, &word, 1);
    phase.finish = [&] {
      MPI_Send(&word, 1, MPI_CHAR, last, kTag, MPI_COMM_WORLD);
      MPI_Recv(&word, 1, MPI_CHAR, last, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // now it is on its way
      for (int i = 0; i < 1000; ++i) poll_progress();
      finished_within = other.done();
    };
  }
  step->start();
  step->wait();
  other.wait();
  if (world.rank() > 0) return;
  CHECK_FALSE(finished_within);
  CHECK(late == std::vector<char>(kBytes, 1));
}

TEST_CASE("a dropped work is waited for") {
  const Communicator world = test_world();
  const Array array = contribution(world.rank(), {50'000}, DType::F32);
  { const Work dropped = world.all_reduce(array, ReduceOp::Sum); }
  CHECK(equal(array, reduced(world.size(), array.sizes(), DType::F32, ReduceOp::Sum)));
}

namespace {

// Cut at 6 and 4 rows: rank 0 of the group sends its last rows, rank 1 its first.
void seam_exchange(const Communicator& pair) {
  const int rank = pair.rank();
  std::vector<double> rows(rank == 0 ? 6 : 4);
  std::iota(rows.begin(), rows.end(), rank == 0 ? 0.0 : 6.0);
  double halo = -1;
  const std::vector<SendBuffer> sends{{1 - rank, rank == 0 ? &rows.back() : &rows.front(), sizeof(double)}};
  const std::vector<RecvBuffer> recvs{{1 - rank, &halo, sizeof(double)}};
  pair.exchange(sends, recvs).wait();
  expect(halo == (rank == 0 ? 6.0 : 5.0), "halo is {}", halo);
}

}  // namespace

TEST_CASE("the host's own sub-communicator, freed at once; the other ranks never call the library") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 3) return;
  const bool inside = rank == 1 || rank == 2;
  for (const bool reversed : {false, true}) {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, inside ? 0 : MPI_UNDEFINED, reversed ? -rank : rank, &host);
    if (inside) {
      const Communicator pair = communicator_from_mpi(host);
      MPI_Comm_free(&host);
      CHECK(pair.size() == 2);
      CHECK(pair.rank() == (reversed ? 2 - rank : rank - 1));
      seam_exchange(pair);
      const Communicator swapped = pair.subgroup({{1, 0}});
      seam_exchange(swapped);
      all_reduces(swapped, {5});
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("a receive of the host from anybody with any tag never catches a message of the library") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  int caught = -1;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&caught, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  random_exchanges(test_world(), 5, 1000);
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  test_world().barrier();
  CHECK(done == 0);
  const int mine = 1000 + rank;
  MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(caught == 1000 + (rank + size - 1) % size);
}

TEST_CASE("a session inside a running MPI does not end it") {
  for (int i = 0; i < 20; ++i) {
    const MpiSession session;
    session.world().barrier();
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  CHECK(finalized == 0);
}
