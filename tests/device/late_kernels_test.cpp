// Halos of a device whose kernels run late: a message must not be read before the kernel that packs it has
// run, nor what it is packed from be written over before that.
#include <catch2/catch.hpp>

#include <chrono>

#include "emulated/streams.h"
#include "ops/halo.h"
#include "ops/op.h"
#include "runtime/cuda/api.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

constexpr int kRounds = 200;
constexpr std::chrono::milliseconds kLate{5};

// The compute stream comes to a stop here, for so long.
void delay_kernels() {
  auto* compute = reinterpret_cast<emulated::Stream*>(cuda::compute_stream());
  using Clock = std::chrono::steady_clock;
  emulated::enqueue(compute, [from = Clock::time_point()]() mutable {
    if (from == Clock::time_point()) from = Clock::now();
    return Clock::now() - from >= kLate;
  });
}

double number(int round, int rank) { return 100.0 * round + rank; }

}  // namespace

TEST_CASE("kernels that run late are waited for by the messages that they pack, not by the host", "[nccl]") {
  const Communicator world = test_world();
  const int ranks = world.size();
  const DeviceMesh mesh(world, {{"domain", ranks}});
  // Columns are cut, so that a halo is packed and unpacked.
  const Dims sizes{6, 3 * ranks};
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(1)}, sizes);
  const Window ring{.kernel = 3, .pad_lo = 1, .pad_hi = 1, .mode = PaddingMode::Circular};
  const auto halo = halo_of(spec, spec, sizes, {Window(), ring});
  const Array x = Array::zeros({6, 3}, DType::F64).to(Device::Cuda);
  halo->gather(x);  // here the ranks meet
  std::vector<Array> got;
  const std::int64_t waits = cuda::host_waits();
  for (int round = 0; round < kRounds; ++round) {
    delay_kernels();
    x.fill_(number(round, world.rank()));
    got.push_back(halo->gather(x));
  }
  CHECK(cuda::host_waits() - waits <= kRounds);
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> values = got[static_cast<std::size_t>(round)].to_vector();
    REQUIRE(values.size() == 6 * 5);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int step = i % 5 == 0 ? ranks - 1 : i % 5 == 4 ? 1 : 0;
      INFO("round " << round << " element " << i);
      REQUIRE(values[i] == number(round, (world.rank() + step) % ranks));
    }
  }
}
