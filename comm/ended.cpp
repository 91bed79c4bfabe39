#include "comm/ended.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "comm/mpi_requests.h"
#include "runtime/seconds.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuestion = 1;
constexpr int kAnswer = 2;

}  // namespace

EndedRanks& ended_ranks() {
  static EndedRanks ranks;
  return ranks;
}

void EndedRanks::begin() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  forget();
}

void EndedRanks::forget() {
  int size = 0;
  MPI_Comm_size(comm_, &size);
  asked_.assign(static_cast<std::size_t>(size), false);
  answers_.assign(static_cast<std::size_t>(size), std::nullopt);
  known_ = 0;
}

void EndedRanks::finish() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

// At most four bytes, which no MPI library makes wait for their receiver for long.
void EndedRanks::send(int rank, int tag, const int* status) {
  sends_.push_back(MPI_REQUEST_NULL);
  MPI_Isend(status, status == nullptr ? 0 : 1, MPI_INT, rank, tag, comm_, &sends_.back());
}

void EndedRanks::receive() {
  for (int there = 1; there != 0;) {
    MPI_Status found;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &found);
    if (there == 0) break;
    const int rank = found.MPI_SOURCE;
    int status = 0;
    MPI_Recv(&status, 1, MPI_INT, rank, found.MPI_TAG, comm_, MPI_STATUS_IGNORE);
    if (found.MPI_TAG == kQuestion) {
      askers_.push_back(rank);
    } else {
      answers_[static_cast<std::size_t>(rank)] = {status, Clock::now()};
      --unanswered_;
      ++known_;
    }
  }
  std::erase_if(sends_, [](MPI_Request& request) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

std::optional<RankEnd> EndedRanks::end_of(int rank) {
  if (comm_ == MPI_COMM_NULL || mpi_is_over()) return std::nullopt;
  const auto r = static_cast<std::size_t>(rank);
  if (!asked_[r]) {
    asked_[r] = true;
    ++unanswered_;
    send(rank, kQuestion, nullptr);
  }
  receive();
  if (!answers_[r]) return std::nullopt;
  return RankEnd{answers_[r]->status, seconds_since(answers_[r]->heard)};
}

// A rank comes to the barrier when its questions are answered, which every rank does that has ended. So when
// all have come none is left.
bool EndedRanks::wait_for_all(int status, double seconds) {
  constexpr useconds_t kNap = 200;
  own_status_ = status;
  const bool answers = comm_ != MPI_COMM_NULL;
  const Clock::time_point start = Clock::now();
  MPI_Request barrier = MPI_REQUEST_NULL;
  for (bool waits = false;;) {
    if (answers) receive();
    for (const int rank : askers_) send(rank, kAnswer, &own_status_);
    askers_.clear();
    if (!waits && unanswered_ == 0) {
      MPI_Ibarrier(answers ? comm_ : MPI_COMM_WORLD, &barrier);
      waits = true;
    }
    int all = 0;
    if (waits) MPI_Test(&barrier, &all, MPI_STATUS_IGNORE);
    if (all != 0) break;
    if (seconds_since(start) > seconds) return false;
    usleep(kNap);
  }
  if (!sends_.empty()) MPI_Waitall(static_cast<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE);
  sends_.clear();
  if (answers) forget();
  return true;
}

}  // namespace tessera
