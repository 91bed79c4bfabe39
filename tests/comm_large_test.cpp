// More than 2^31 bytes in one message and one all_reduce, 2 ranks (about 9 GB in all).
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/comm_cases.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

constexpr std::int64_t kLarge = (std::int64_t{1} << 31) + 16;

TEST_CASE("a message of more than 2^31 bytes") {
  const Communicator world = test_world();
  const int rank = world.rank();
  const Array array = Array::empty({kLarge / 8}, DType::I64);
  auto* data = array.data<std::int64_t>();
  for (std::int64_t i = 0; i < array.numel(); ++i) data[i] = rank == 0 ? 3 * i : -1;
  std::vector<SendBuffer> sends;
  std::vector<RecvBuffer> recvs;
  if (rank == 0) sends.push_back({1, data, kLarge});
  if (rank == 1) recvs.push_back({0, data, kLarge});
  world.exchange(sends, recvs).wait();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; rank < 2 && i < array.numel(); ++i) wrong += data[i] != 3 * i ? 1 : 0;
  CHECK(wrong == 0);
}

TEST_CASE("an all_reduce of more than 2^31 elements") {
  const Communicator world = test_world();
  const int rank = world.rank();
  const Array array = Array::empty({kLarge}, DType::Bool);
  auto* data = array.data<unsigned char>();
  for (std::int64_t i = 0; i < kLarge; ++i) data[i] = i % 3 == rank ? 1 : 0;
  world.all_reduce(array, ReduceOp::Max).wait();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < kLarge; ++i) count += data[i];
  // How many i < n have i % 3 == 0, and i % 3 == 1.
  const std::int64_t zeros = (kLarge + 2) / 3;
  const std::int64_t ones = (kLarge + 1) / 3;
  CHECK(count == zeros + (world.size() > 1 ? ones : 0));
}
