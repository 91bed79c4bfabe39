// The harness itself: one seed, one world, equal random numbers on all ranks.
#include <mpi.h>

#include <catch2/catch.hpp>

#include "tests/support/world.h"

namespace tessera {

TEST_CASE("every rank draws the same random numbers", "[support]") {
  auto random = test_random(7);
  std::int64_t mine[2] = {random_int(random, 0, 1'000'000'000), static_cast<std::int64_t>(test_seed())};
  std::int64_t least[2];
  std::int64_t most[2];
  MPI_Allreduce(mine, least, 2, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(mine, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  CHECK(least[0] == most[0]);
  CHECK(least[1] == most[1]);
  CHECK(test_random(7)() != test_random(8)());
}

TEST_CASE("the test world holds all ranks", "[support]") {
  int ranks = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  CHECK(test_world().size() == ranks);
  CHECK(test_world().rank() == rank);
}

}  // namespace tessera
