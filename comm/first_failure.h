// Of ranks that fail one says why: the first of its host to say so in memory that they share, at once.
#pragma once
#include <mpi.h>

#include <memory>

#include "comm/shared_pages.h"

namespace tessera {

class FirstFailure {
 public:
  // Who is to say why.
  enum class Speaker {
    This,     // the first to ask for it
    Another,  // one asked for it before
    Unknown,  // nothing is shared, or not with the first rank of the job: the first ranks go first
  };
  // Nothing is shared.
  FirstFailure() = default;
  // Collective over `job`. Ranks of a host that give another number for `part` count as another host.
  FirstFailure(MPI_Comm job, bool wanted, int part = 0);
  // By a rank that has failed. No two ranks of the first host get This, and a rank does once.
  Speaker ask();

 private:
  std::unique_ptr<SharedPages> pages_;
  bool with_first_ = false;  // this host has rank 0 of the job
};

}  // namespace tessera
