// Whether ranks of the job have ended their run. Nobody tells anybody unasked: a rank that has waited for
// seconds asks those for whom it waits, and a rank that has ended answers until all have. Ranks that are busy
// do not look, and answer when they end, so asking costs them nothing.
#pragma once
#include <mpi.h>

#include <chrono>
#include <optional>
#include <vector>

#include "comm/transport.h"

namespace tessera {

// One per process, as MPI is; of jobs whose MPI the library has started. Until `begin` nobody is known to
// have ended.
class EndedRanks {
 public:
  // Collective over the job; `finish` when no rank can ask any more.
  void begin();
  void finish();
  // How a rank of the job has ended; nothing unless it is known to have.
  std::optional<RankEnd> end_of(int rank);
  // Whether any rank is known to have.
  bool know_of_any() const { return known_ > 0; }
  // This rank has ended and waits for all others to; whether they all have within `seconds`. After a true no
  // message of this class is under way, and no rank is known to have ended: they may all go on.
  bool wait_for_all(int status, double seconds);

 private:
  struct Answer {
    int status = 0;
    std::chrono::steady_clock::time_point heard;
  };
  void forget();
  void send(int rank, int tag, const int* status);
  void receive();

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<bool> asked_;
  std::vector<std::optional<Answer>> answers_;
  int unanswered_ = 0;
  int known_ = 0;
  std::vector<int> askers_;
  std::vector<MPI_Request> sends_;
  int own_status_ = 0;
};

EndedRanks& ended_ranks();

}  // namespace tessera
