// Communicators of the emulated NCCL, and how a job that has gone wrong ends.
#pragma once
#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "emulated/streams.h"

namespace tessera::emulated {

double seconds_since(std::chrono::steady_clock::time_point start);
// How long anything may wait for other ranks.
double nccl_patience();
// Says why, as printf does, and ends the job.
[[noreturn, gnu::format(printf, 1, 2)]] void end_job(const char* format, ...);
bool complete(std::vector<MPI_Request>& requests);
// Faults on purpose (nccl.h).
bool never_begins();
bool never_posts();

// Who made the number, and how many it had made before.
struct NcclId {
  std::uint64_t magic = 0;
  std::int32_t root = 0;
  std::int32_t count = 0;
};

// One message between two ranks of the job, in whatever communicator.
struct NcclPlace {
  NcclId comm{0, -1, -1};    // of none
  std::uint64_t number = 0;  // among those of the communicator
};
bool operator==(const NcclPlace& a, const NcclPlace& b);
// What came before a message with that rank of the job, sent by this process (or received), of all
// communicators; and `now` comes before the next.
NcclPlace nccl_place_before(int world_rank, bool sent, const NcclPlace& now);

constexpr std::uint64_t kNcclMagic = 0x7465737365726121;

// What a rank tells the root.
struct NcclMember {
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::int32_t world_rank = 0;
  std::int32_t device = -1;  // of those that all processes of the host see
};

}  // namespace tessera::emulated

// Freed when the last task that names it is.
struct ncclComm {
  std::shared_ptr<ncclComm> self;
  int rank = 0;
  int ranks = 0;
  MPI_Comm mpi = MPI_COMM_NULL;
  ncclResult_t state = ncclInProgress;
  bool aborted = false;
  bool finalized = false;
  int device = tessera::emulated::current_device();
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  // While it is made.
  tessera::emulated::NcclId id;
  tessera::emulated::NcclMember me;
  std::vector<tessera::emulated::NcclMember> members;  // at the root
  std::vector<std::int32_t> table;
  std::vector<MPI_Request> requests;
  MPI_Request answer = MPI_REQUEST_NULL;
  bool told = false;
  bool blocking = true;
  // What is done in the background, after so many polls.
  std::vector<std::function<void()>> later;
  int polls = 0;
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();

  void begin();
  void go_on();
  // Does `work` in the background where the communicator does not block.
  ncclResult_t do_later(std::function<void()> work);
  // Whether it was made and neither destroyed nor aborted.
  static bool is_in_use(const ncclComm* comm);
  void drop();
  // Order among all communicators says nothing beside one that was given up.
  static bool was_aborted(const tessera::emulated::NcclId& id);
  void note_abort();
  bool is_begun() const { return mpi != MPI_COMM_NULL; }

 private:
  int init_tag() const;
  void do_it();
  void tell_members();
};
