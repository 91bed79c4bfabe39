// Between the parts of the test harness; tests themselves need world.h only.
#pragma once
#include <mpi.h>

#include <cstdint>

namespace tessera::harness {

// A communicator on which only the harness talks.
MPI_Comm comm();
void set_seed(std::uint64_t seed);
// Frees what test_world() made; before MPI_Finalize.
void release_world();

// A failed REQUIRE or an uncaught exception was seen on this rank in the running pass of a case.
void note_hard_failure();
// The end of one pass of a case, collective: all ranks left it alike, or the job ends with a message.
void end_of_pass(const char* test_case);

}  // namespace tessera::harness
