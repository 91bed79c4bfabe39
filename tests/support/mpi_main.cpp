// The main of every test program: Catch on all ranks of an MPI run, with one verdict.
//
// All ranks run the same cases in the same order with the same seed. After each pass through a case they
// meet: a rank that left it by a failed REQUIRE or an exception waits a few seconds for the others and, if
// they do not come (they are stuck in a collective that it left), ends the job. So no failure hangs, and a
// failure that all ranks share does not keep the next cases from running. CHECK failures are merged at the
// end.
#define CATCH_CONFIG_RUNNER
#include <mpi.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/error.h"
#include "tests/support/harness.h"

namespace tessera::harness {
namespace {

constexpr double kPatienceSeconds = 5.0;
MPI_Comm harness_comm = MPI_COMM_NULL;
bool hard_failure = false;

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(harness_comm, &rank);
  return rank;
}

[[noreturn]] void give_up(const char* test_case, const char* reason) {
  std::fflush(stdout);
  std::fprintf(stderr, "[rank %d] \"%s\": %s; the job ends here\n", rank_in_world(), test_case, reason);
  std::fflush(stderr);
  usleep(300'000);  // lets the other ranks' messages through
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

// Polls, so that a rank that waits leaves the core to those that work.
bool finished_within(MPI_Request& request, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int polls = 0;; ++polls) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return true;
    if (seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() > seconds) return false;
    if (polls > 1000) usleep(500);
  }
}

// The options that every test program has besides Catch's.
void add_options(Catch::Session& session) {
  const auto into = [](const char* variable) {
    return [variable](const std::string& value) { setenv(variable, value.c_str(), 1); };
  };
  using Catch::clara::Opt;
  session.cli(
      session.cli() |
      Opt(into("TESSERA_SEED"), "number")["--seed"]("seed of everything that is drawn at random") |
      Opt(into("TESSERA_TRIALS"), "times")["--trials"]("how many times the usual number of random trials"));
}

std::uint64_t choose_seed() {
  std::uint64_t seed =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  seed %= 1'000'000'007ULL;
  if (const char* given = std::getenv("TESSERA_SEED")) seed = std::strtoull(given, nullptr, 10);
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, harness_comm);
  return seed;
}

}  // namespace

MPI_Comm comm() { return harness_comm; }

void note_hard_failure() { hard_failure = true; }

void end_of_pass(const char* test_case) {
  const int mine[2] = {hard_failure ? 1 : 0, hard_failure ? 0 : 1};
  int all[2] = {0, 0};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(mine, all, 2, MPI_INT, MPI_SUM, harness_comm, &request);
  if (!finished_within(request, hard_failure ? kPatienceSeconds : 0.0))
    give_up(test_case, "failed here, and other ranks did not reach the end of the case");
  // Messages of the ranks that failed may be missing from now on.
  if (all[0] > 0 && all[1] > 0 && hard_failure) give_up(test_case, "failed on some ranks and not on others");
  if (all[0] > 0 && all[1] > 0) usleep(3'000'000);  // a failing rank ends the job
  hard_failure = false;
}

int run(int argc, char** argv) {
  MPI_Comm_dup(MPI_COMM_WORLD, &harness_comm);
  int ranks = 1;
  MPI_Comm_size(harness_comm, &ranks);
  const int rank = rank_in_world();
  set_rank_label({rank, ranks});

  if (rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return 1;
  Catch::Session session;
  add_options(session);
  int failed = session.applyCommandLine(argc, argv);
  const std::uint64_t seed = choose_seed();
  set_seed(seed);
  setenv("TESSERA_EMULATED_SEED", std::to_string(seed).c_str(), 0);  // of the streams of an emulated device
  if (failed == 0) {
    session.configData().rngSeed = static_cast<unsigned int>(seed);
    session.configData().useColour = Catch::UseColour::No;
    session.configData().warnings = Catch::WarnAbout::NoTests;  // a filter that matches nothing fails
    if (rank == 0)
      std::printf("%d rank%s, TESSERA_SEED=%llu\n", ranks, ranks == 1 ? "" : "s",
                  static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    failed = session.run() != 0 ? 1 : 0;
  }
  int failed_ranks = 0;
  MPI_Allreduce(&failed, &failed_ranks, 1, MPI_INT, MPI_SUM, harness_comm);
  if (failed_ranks > 0) std::printf("FAILED on %d of %d ranks\n", failed_ranks, ranks);
  release_world();
  MPI_Comm_free(&harness_comm);
  return failed_ranks;
}

}  // namespace tessera::harness

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int failed = tessera::harness::run(argc, argv);
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}
