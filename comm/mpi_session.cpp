#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "comm/ended.h"
#include "comm/group.h"
#include "comm/mpi.h"
#include "comm/mpi_transport.h"
#include "runtime/environment.h"
#include "runtime/one_line.h"

namespace tessera {

namespace {

// MPI exists once per process, so its owners are counted once per process.
int live_sessions = 0;
bool started_here = false;
int last_rank = 0;  // in the job: who speaks for all, of what fails after MPI has ended

bool flag_of(int (*query)(int*)) {
  int flag = 0;
  query(&flag);
  return flag != 0;
}

void start_mpi(int* argc, char*** argv) {
  TS_CHECK(!flag_of(&MPI_Finalized), "mpi",
           "MPI was ended in this process before and cannot be started again");
  if (flag_of(&MPI_Initialized)) return;
  int provided = 0;
  const int code = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  if (code != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED) {
    TS_FAIL(Comm, "mpi", "MPI did not start with thread level FUNNELED (code {}, level {})", code, provided);
  }
  started_here = true;
  ended_ranks().begin();
}

// The mode that checks calls sends messages of its own. A launcher that sets it for some ranks alone would
// have them read each other's wrongly.
void check_mode_agrees(const Endpoint& endpoint, MPI_Comm comm) {
  const int own = endpoint.check_calls ? 1 : 0;
  std::vector<int> all(static_cast<std::size_t>(endpoint.transport->size()));
  check_mpi(MPI_Allgather(&own, 1, MPI_INT, all.data(), 1, MPI_INT, comm), "MPI_Allgather");
  for (std::size_t r = 1; r < all.size(); ++r)
    TS_CHECK(all[r] == all[0], "communicator",
             "TESSERA_CHECK_CALLS must be the same on all ranks, but is {} on rank {} and {} on rank 0",
             all[r], r, all[0]);
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  start_mpi(argc, argv);
  ++live_sessions;
  owner_ = started_here;
  last_rank = rank_in_job();
  world_ = communicator_from_mpi(MPI_COMM_WORLD);
}

// A rank that leaves by an exception may be alone in that: MPI_Finalize would wait for the others for ever,
// while leaving without it makes the launcher end the job.
MpiSession::~MpiSession() {
  world_ = {};
  --live_sessions;
  if (!owner_ || live_sessions > 0 || std::uncaught_exceptions() > 0) return;
  if (flag_of(&MPI_Finalized)) return;
  all_ranks_come(std::numeric_limits<double>::infinity());
  ended_ranks().finish();
  MPI_Finalize();
}

Communicator communicator_from_mpi(MPI_Comm comm) {
  TS_CHECK(flag_of(&MPI_Initialized) && !flag_of(&MPI_Finalized), "mpi", "MPI is not running");
  TS_CHECK(comm != MPI_COMM_NULL, "mpi", "the communicator is MPI_COMM_NULL");
  check_settings();
  std::shared_ptr<Group> group = make_world_group(std::make_unique<MpiTransport>(comm));
  check_mode_agrees(group->endpoint(), comm);
  return Communicator(std::move(group));
}

int ranks_on_this_host(const Communicator& comm) {
  return required(comm.group()).transport().ranks_on_host();
}
int cores_of_this_host(const Communicator& comm) {
  return required(comm.group()).transport().cores_on_host();
}

bool all_ranks_come(double seconds, int status) { return ended_ranks().wait_for_all(status, seconds); }

int rank_in_job() {
  if (!flag_of(&MPI_Initialized) || flag_of(&MPI_Finalized)) return last_rank;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void abort_job(const Communicator& comm, const std::string& message) {
  constexpr unsigned kMostSeconds = 4;
  // If several ranks come here with the same message, the first one ends the job before the others repeat it;
  // on a busy machine that takes the launcher a second.
  const int rank = comm.defined() ? comm.rank() : rank_in_job();
  sleep(std::min(static_cast<unsigned>(rank), kMostSeconds));
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", one_line(message).c_str());
  std::fflush(stderr);
  if (flag_of(&MPI_Initialized) && !flag_of(&MPI_Finalized)) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace tessera
