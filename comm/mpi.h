// Communicators over MPI.
#pragma once
#include <mpi.h>

#include "comm/communicator.h"

namespace tessera {

// Starts MPI if nobody has (and then ends it when the last owner goes), or joins one that the host program
// started. The last owner to go waits for all ranks; others that wait for a message of this rank are refused
// then, some seconds after they began to (where the host program has started MPI, at their deadline). Asks
// for MPI_THREAD_FUNNELED. Sets MPI_ERRORS_RETURN on its own communicators only.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  MpiSession() : MpiSession(nullptr, nullptr) {}
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  Communicator world() const { return world_; }

 private:
  Communicator world_;
  bool owner_ = false;
};

// Collective over `comm`, which is duplicated: the caller may free it at once, and no message of the library
// can meet one of the caller's. Only the ranks of `comm` take part. A Work moves on only while its rank waits
// or computes in the library: wait for it before a call of MPI that blocks until other ranks come.
Communicator communicator_from_mpi(MPI_Comm comm);

// How many of the ranks of its transport share this host's cores, this one included.
int ranks_on_this_host(const Communicator& comm);
// How many cores these may run on, all together.
int cores_of_this_host(const Communicator& comm);

// Collective over all ranks of the job: whether they all come here within `seconds` (infinity: however long
// it takes). This rank has ended its run by then, with `status`, and says so to ranks that wait for it. After
// a false it can only end the job, for the others may still come.
bool all_ranks_come(double seconds, int status = 0);

// The rank of this process in the job, also after MPI has ended; 0 before it runs.
int rank_in_job();

// The message of an error that this rank met, in one line, then the end of the whole job: at once by the
// first rank to come here, the others being silent; within seconds where they share no memory of a host.
[[noreturn]] void abort_job(const Communicator& comm, const std::string& message);

}  // namespace tessera
