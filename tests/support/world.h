// What every test under MPI shares: the world, one seed, and a random generator that starts equal on all
// ranks.
#pragma once
#include <cstdint>
#include <random>

#include "comm/communicator.h"

namespace tessera {

// All ranks of the run, on a communicator of the tests' own.
Communicator test_world();

// TESSERA_SEED, or a seed from the clock; the same on every rank, printed when the program starts.
std::uint64_t test_seed();

// Seeded by test_seed() and `stream`: the same numbers on every rank, as long as every rank draws the same.
std::mt19937_64 test_random(std::uint64_t stream = 0);

// Where the tensors under test live: TESSERA_TEST_DEVICE (cpu or cuda), else the CPU. References are always
// worked out on the CPU.
Device test_device();

// Uniform in [lo, hi], both included.
std::int64_t random_int(std::mt19937_64& random, std::int64_t lo, std::int64_t hi);

}  // namespace tessera
