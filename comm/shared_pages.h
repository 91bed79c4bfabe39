// Memory that the ranks of one host see alike. It has no name in any file system, so nothing is left behind
// however the ranks end, and pages that nobody touches cost nothing.
#pragma once
#include <mpi.h>

#include <cstddef>

namespace tessera {

class SharedPages {
 public:
  SharedPages() = default;
  // Collective over `host`, whose ranks run on one host: zeroed memory, or none on every rank where one rank
  // does not want it or cannot have it. `bytes` are those of rank 0.
  SharedPages(MPI_Comm host, std::size_t bytes, bool wanted);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  // Null: none.
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tessera
