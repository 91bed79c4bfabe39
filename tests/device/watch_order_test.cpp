// What a kernel tells the host by memory of the host (runtime/cuda/watch.h), in the order in which the host
// may see it. The host looks at what graphs have found without an event, while they may run.
#include <catch2/catch.hpp>

#include <utility>
#include <vector>

#include "emulated/blocks.h"
#include "ops/cuda/indexing_kernels.h"
#include "runtime/array.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"

using namespace tessera;

namespace {

std::int64_t* slot = nullptr;
std::vector<std::pair<std::int64_t, std::int64_t>> at_fences;

}  // namespace

TEST_CASE("a wrong number is there before the flag that says so", "[device]") {
  const cuda::StagingBuffer buffer(16);
  slot = static_cast<std::int64_t*>(buffer.data());
  slot[0] = slot[1] = 0;
  const Array numbers = Array::from(std::vector<double>{1, 9, 2}, {3}, DType::I64).to(Device::Cuda);
  const Array own = Array::empty({3}, DType::I64, Device::Cuda);
  cuda::OwnNumbers args;
  args.numbers = numbers.data<std::int64_t>();
  args.own = own.data<std::int64_t>();
  args.count = 3;
  args.n = 4;
  args.wrong = slot;
  emulated::fence_met = [] { at_fences.emplace_back(slot[0], slot[1]); };
  cuda::own_numbers(args, cuda::compute_stream());
  synchronize(Device::Cuda);
  emulated::fence_met = nullptr;
  CHECK(at_fences == std::vector{std::pair{std::int64_t{0}, std::int64_t{9}}});
  CHECK(slot[0] == 1);
  CHECK(slot[1] == 9);
  CHECK(own.to_vector() == std::vector<double>{1, -1, 2});
}
