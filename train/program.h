// Runtime: what a program needs around its main function, as a value.
//
//   int main(int argc, char** argv) {
//     return tessera::run_program(argc, argv, [](tessera::Runtime& runtime, int argc, char** argv) { … });
//   }
//
// Errors become one line and exit status 1. An error that follows from what all ranks were given is thrown by
// all of them and printed once; a rank that fails alone prints its line and ends the job (`abort_job`). It
// fails too if it returns a status that is not 0 while others go on, who might wait for it, or if a Work of
// `world` failed for which it did not wait. Who returns 0 early is named, in seconds, to those who wait for
// it.
#pragma once
#include <functional>

#include "comm/mpi.h"

namespace tessera {

class Runtime {
 public:
  // Starts MPI or joins a running one; labels errors and log lines with the rank; takes cores/ranks threads
  // (per host) unless OMP_NUM_THREADS says otherwise.
  Runtime(int& argc, char**& argv);
  // In a program that has its own communicator: collective over `comm`, which is duplicated.
  explicit Runtime(MPI_Comm comm);

  const Communicator& world() const { return world_; }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

 private:
  void set_up();
  MpiSession session_;
  Communicator world_;
};

using ProgramBody = std::function<int(Runtime& runtime, int argc, char** argv)>;
// Collective. The exit status of the program: the body's, or 1 after an error. Whatever the body throws is an
// error, and is not thrown on.
int run_program(int argc, char** argv, const ProgramBody& body);

}  // namespace tessera
