#include "tests/support/world.h"

#include <mpi.h>

#include <cstdlib>
#include <optional>

#include "comm/device_link.h"
#include "comm/mpi.h"
#include "runtime/device.h"
#include "tests/support/harness.h"

namespace tessera {
namespace {

std::uint64_t seed_value = 0;
std::optional<Communicator>& world_slot() {
  static std::optional<Communicator> world;
  return world;
}

}  // namespace

Communicator test_world() {
  auto& world = world_slot();
  if (!world) {
    world = communicator_from_mpi(MPI_COMM_WORLD);
    select_device_of_rank(*world, test_device());
  }
  return *world;
}

std::uint64_t test_seed() { return seed_value; }

std::mt19937_64 test_random(std::uint64_t stream) {
  std::seed_seq words{seed_value & 0xffffffffU, seed_value >> 32U, stream & 0xffffffffU, stream >> 32U};
  return std::mt19937_64(words);
}

Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("TESSERA_TEST_DEVICE");
    return name == nullptr ? Device::Cpu : device_from_name("TESSERA_TEST_DEVICE", name);
  }();
  return device;
}

std::int64_t random_int(std::mt19937_64& random, std::int64_t lo, std::int64_t hi) {
  return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
}

namespace harness {

void set_seed(std::uint64_t seed) { seed_value = seed; }
void release_world() { world_slot().reset(); }

}  // namespace harness
}  // namespace tessera
