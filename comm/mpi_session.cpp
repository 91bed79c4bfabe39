#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

#include "comm/ended.h"
#include "comm/first_failure.h"
#include "comm/group.h"
#include "comm/host_channel.h"
#include "comm/mpi.h"
#include "comm/mpi_transport.h"
#include "comm/rank_list.h"
#include "runtime/environment.h"
#include "runtime/one_line.h"

namespace tessera {

namespace {

// MPI exists once per process, so its owners are counted once per process.
int live_sessions = 0;
bool started_here = false;
int last_rank = 0;  // in the job: who speaks for all, of what fails after MPI has ended

// Of jobs whose MPI the library has started; as they are, nothing is shared.
FirstFailure& first_failure() {
  static FirstFailure failure;
  return failure;
}

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

// By MPI itself: what a communicator sends depends on the settings.
std::vector<std::string> gather_texts(const std::string& own, MPI_Comm comm) {
  int ranks = 0;
  check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm), "MPI_Allgather");
  std::vector<int> starts(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
  std::string all(static_cast<std::size_t>(starts.back() + lengths.back()), '\0');
  check_mpi(
      MPI_Allgatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, comm),
      "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(lengths[r])));
  return texts;
}

// Of a variable in lines "variable=value".
std::string value_in(const std::string& lines, const std::string& variable) {
  const std::size_t at = ("\n" + lines).find("\n" + variable + "=");
  if (at == std::string::npos) return "unknown";
  const std::size_t begin = at + variable.size() + 1;
  return lines.substr(begin, lines.find('\n', begin) - begin);
}

void check_same_settings(MPI_Comm comm) {
  const std::vector<std::string> all = gather_texts(common_settings(), comm);
  if (ranks_of_equal(all).size() == 1) return;
  for (std::size_t at = 0; at < all[0].size(); at = all[0].find('\n', at) + 1) {
    const std::string variable = all[0].substr(at, all[0].find('=', at) - at);
    std::vector<std::string> values;
    for (const std::string& lines : all) values.push_back(value_in(lines, variable));
    std::vector<std::string> who;
    for (const std::vector<int>& ranks : ranks_of_equal(values))
      who.push_back(fmt::format("{} on {}", values[static_cast<std::size_t>(ranks[0])], rank_list(ranks)));
    TS_CHECK(who.size() == 1, "communicator", "{} must be the same on all ranks, but is {}", variable,
             fmt::join(who, "; "));
  }
}

// Ranks may fail together, of one cause: where none is known to be the first of them, the first rank speaks,
// and has ended the job before the others repeat it; on a busy machine that takes the launcher a second.
// Who is not to speak does so where the job has not ended long after it should have.
unsigned seconds_until_turn(int rank) {
  constexpr unsigned kHeadStart = 4;
  constexpr unsigned kMostSeconds = 4;
  constexpr unsigned kLongAfter = 30;
  const FirstFailure::Speaker speaker = first_failure().ask();
  if (speaker == FirstFailure::Speaker::Another) return kLongAfter;
  if (speaker == FirstFailure::Speaker::This || rank == 0) return 0;
  return kHeadStart + std::min(static_cast<unsigned>(rank), kMostSeconds);
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv) {
  start_mpi(argc, argv);
  ++live_sessions;
  owner_ = started_here;
  last_rank = rank_in_job();
  world_ = communicator_from_mpi(MPI_COMM_WORLD);
  if (live_sessions == 1 && started_here) {
    first_failure() = FirstFailure(MPI_COMM_WORLD, HostChannel::wanted_by_environment());
  }
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
  check_same_settings(comm);
  return Communicator(make_world_group(std::make_unique<MpiTransport>(comm)));
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
  sleep(seconds_until_turn(comm.defined() ? comm.rank() : rank_in_job()));
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", one_line(message).c_str());
  std::fflush(stderr);
  if (flag_of(&MPI_Initialized) && !flag_of(&MPI_Finalized)) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace tessera
