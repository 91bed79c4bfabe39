// Memory, copies and streams of the device: values arrive, nothing is touched too early or too late, and only
// reading makes the host wait.
#include <catch2/catch.hpp>

#include "ops/kernels.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/block_pool.h"
#include "runtime/copy.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/launch_shape.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/kernel.h"
#include "runtime/progress.h"
#include "runtime/rng.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

Array counted(const Dims& sizes, DType dtype, Device device) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 101) - 50;
  return Array::from(values, sizes, dtype).to(device);
}

constexpr DType kTypes[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                            DType::I64, DType::I32, DType::Bool};

}  // namespace

TEST_CASE("arrays go to the device and come back", "[device]") {
  for (const DType dtype : kTypes) {
    const Array here = counted({3, 5, 7}, dtype, Device::Cpu);
    const Array there = here.to(Device::Cuda);
    CHECK(there.device() == Device::Cuda);
    CHECK(there.to_vector() == here.to_vector());
    CHECK(there.at(11) == here.at(11));
    CHECK(there.to(Device::Cpu).to_vector() == here.to_vector());
  }
}

TEST_CASE("views are copied and converted as on the CPU", "[device]") {
  std::mt19937_64 random = test_random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const DType from = kTypes[random_int(random, 0, 6)];
    const DType to = kTypes[random_int(random, 0, 6)];
    const Dims sizes{random_int(random, 1, 5), random_int(random, 1, 6), random_int(random, 1, 7)};
    const int a = static_cast<int>(random_int(random, 0, 2));
    const int b = static_cast<int>(random_int(random, 0, 2));
    const auto seen = [&](const Array& x) {
      return x.transpose(a, b).slice(1, 0, 1 + (x.transpose(a, b).size(1) - 1) / 2);
    };
    const Array cpu = seen(counted(sizes, from, Device::Cpu));
    const Array cuda = seen(counted(sizes, from, Device::Cuda));
    const Array cpu_out = Array::empty(cpu.sizes(), to);
    const Array cuda_out = Array::empty(cpu.sizes(), to, Device::Cuda);
    copy_strided(cpu_out, cpu);
    copy_strided(cuda_out, cuda);
    CHECK(cuda_out.to_vector() == cpu_out.to_vector());
    add_into(cpu_out, cpu);
    add_into(cuda_out, cuda);
    CHECK(cuda_out.to_vector() == cpu_out.to_vector());
    // Straight between the devices, both sides views.
    const Array mixed = counted(sizes, to, Device::Cpu);
    seen(mixed).copy_(cuda);
    CHECK(seen(mixed).to_vector() == cuda.to(to).to_vector());
  }
}

TEST_CASE("a launch of more blocks than CUDA counts is refused and runs nothing", "[device]") {
  CHECK(cuda::grid_of({.blocks = cuda::kLargestGrid}) == 0x7FFFFFFFU);
  // One element, seen so often that the number of blocks, cut off after 32 bits, would be 0, 1 or 2^31.
  const Array one = Array::full({1}, 3, DType::F32, Device::Cuda);
  for (const std::int64_t blocks :
       {std::int64_t{1} << 31, std::int64_t{1} << 32, (std::int64_t{1} << 32) + 1}) {
    CAPTURE(blocks);
    const auto about = [&] {
      try {
        const Array seen = one.expand({blocks, cuda::one_each(1).threads});
        kernels::unary(Device::Cuda, {seen, seen, cpu::UnaryOp::Neg});
      } catch (const Error& e) {
        return e.kind() == ErrorKind::Backend ? e.message() : std::string("another kind");
      }
      return std::string("not refused");
    };
    CHECK(about() ==
          fmt::format("cuda: a kernel would need {} blocks of threads, at most 2147483647 are allowed: "
                      "give it fewer elements",
                      blocks));
    CHECK(one.at(0) == 3);
  }
}

TEST_CASE("random values are the same bits as on the CPU", "[device]") {
  const RngKey key{static_cast<std::uint64_t>(test_seed()), 3};
  IndexBox box{{40, 9}, {{{0, 3}, {10, 13}, {20, 23}}, {{2, 8}}}, 5};
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    const auto both = [&](auto fill) {
      const Array here = Array::empty({9, 6}, dtype);
      const Array there = Array::empty({6, 9}, dtype, Device::Cuda).transpose(0, 1);
      fill(here);
      fill(there);
      CHECK(there.to_vector() == here.to_vector());
    };
    both([&](const Array& a) { fill_uniform(a, box, key, -1.5, 2); });
    both([&](const Array& a) { fill_normal(a, box, key, 0.5, 2); });
    both([&](const Array& a) { fill_truncated_normal(a, box, key, {0, 1, -0.5, 0.25}); });
    both([&](const Array& a) { dropout_apply(a, counted({9, 6}, dtype, a.device()), box, key, 0.4); });
    box.intervals[0] = {{1, 2}, {4, 9}, {11, 14}};  // of unequal lengths
  }
}

TEST_CASE("memory is used again without asking the driver, in the order of the stream", "[device]") {
  const auto work = [](double value) {
    Array a = Array::full({1000}, value, DType::F64, Device::Cuda);
    Array b = Array::empty({1000}, DType::F64, Device::Cuda);
    copy_strided(b, a);
    a = Array();  // what comes next may get this memory while the copy has not run
    const Array c = Array::full({1000}, -1, DType::F64, Device::Cuda);
    add_into(b, c);
    return b;
  };
  work(1);
  const std::int64_t before = allocator_stats(Device::Cuda).system_allocations;
  const std::int64_t waits = cuda::host_waits();
  std::vector<Array> results;
  for (int i = 0; i < 3; ++i) results.push_back(work(i));
  results.erase(results.begin());
  CHECK(cuda::host_waits() == waits);
  for (int i = 0; i < 50; ++i) work(i);
  // Where blocks go back to the driver at once it is asked for each: one a call of `full` and `empty`.
  CHECK(allocator_stats(Device::Cuda).system_allocations <= before + (detail::keeps_blocks() ? 4 : 53 * 3));
  CHECK(results[0].to_vector() == std::vector<double>(1000, 0.0));
  CHECK(results[1].to_vector() == std::vector<double>(1000, 1.0));
}

TEST_CASE("what is on its way to the device is not written over", "[device]") {
  const std::int64_t waits = cuda::host_waits();
  std::vector<Array> there;
  for (int i = 0; i < 40; ++i) {
    Array here = Array::full({500}, i, DType::F64);
    there.push_back(here.to(Device::Cuda));
    here.fill_(-1);
  }
  CHECK(cuda::host_waits() == waits);
  for (int i = 0; i < 40; ++i)
    CHECK(there[static_cast<std::size_t>(i)].to_vector() == std::vector<double>(500, i));
}

TEST_CASE("a host that runs far ahead waits for the oldest copy rather than take more page-locked memory",
          "[device]") {
  constexpr std::int64_t kCount = 3000;
  const std::int64_t bytes = kCount * size_of(DType::F64);
  const cuda::StagingStats before = cuda::staging_stats();
  const Array busy = Array::zeros({10}, DType::F32, Device::Cuda);
  for (int i = 0; i < 20'000; ++i) busy.fill_(i);
  std::vector<Array> there;
  for (int i = 0; i < 200; ++i) there.push_back(Array::full({kCount}, i, DType::F64).to(Device::Cuda));
  const cuda::StagingStats after = cuda::staging_stats();
  CHECK(after.buffers - before.buffers <= cuda::most_staging_buffers(bytes));
  CHECK(after.bytes - before.bytes <= 2 * bytes * cuda::most_staging_buffers(bytes));
  for (int i = 0; i < 200; ++i) CHECK(there[static_cast<std::size_t>(i)].at(kCount - 1) == i);
  CHECK(cuda::staging_stats().buffers == after.buffers);
}

TEST_CASE("of each size only so many page-locked buffers wait for the device", "[device]") {
  CHECK(cuda::most_staging_buffers(1) == 64);
  CHECK(cuda::most_staging_buffers(4097) == 32);
  CHECK(cuda::most_staging_buffers(std::int64_t{16} << 20) == 16);
  CHECK(cuda::most_staging_buffers((std::int64_t{16} << 20) + 1) == 8);
  CHECK(cuda::most_staging_buffers(std::int64_t{1} << 40) == 2);
}

TEST_CASE("a wait is over when what was launched before it is", "[device]") {
  static Array busy;
  static int left = 0;
  busy = Array::zeros({10}, DType::F32, Device::Cuda);
  // What moves meanwhile may launch.
  set_progress_function([] {
    for (int i = 0; i < 500 && left > 0; ++i, --left) busy.fill_(left);
  });
  for (const bool whole : {false, true}) {
    left = 100'000;
    for (int i = 0; i < 3000; ++i) busy.fill_(i);
    if (whole) {
      synchronize(Device::Cuda);
    } else {
      cuda::synchronize(cuda::compute_stream());
    }
    CHECK(left > 0);
  }
  set_progress_function(nullptr);
  busy = Array();
}

TEST_CASE("a stream goes on after the event it holds for", "[device]") {
  const cuda::StreamHandle other = cuda::make_stream();
  for (int i = 1; i < 20; ++i) {
    const Array a = Array::full({100}, i, DType::F64, Device::Cuda);
    const Array b = Array::empty({100}, DType::F64, Device::Cuda);
    cuda::Event made;
    made.record(cuda::current_stream());
    made.hold(other);
    {
      const cuda::StreamScope scope(other);
      copy_strided(b, a);
    }
    cuda::Event copied;
    copied.record(other);
    copied.hold(cuda::current_stream());
    a.fill_(-1);
    CHECK(b.to_vector() == std::vector<double>(100, i));
  }
  cuda::drop_stream(other);
}

TEST_CASE("what the device does not have is refused by name", "[device]") {
  CHECK_THROWS_WITH(device_from_name("test", "gpu"), Catch::Contains("cpu, cuda and meta"));
  CHECK_THROWS_WITH(Array::empty({std::int64_t{1} << 45}, DType::F64, Device::Cuda),
                    Catch::Contains("out of memory on device cuda"));
}

TEST_CASE("an operation without a kernel for the device is refused by its name", "[device]") {
  bool ran = false;
  const Kernel<void(bool&)> mine{"my_op", [](bool& called) { called = true; }};
  CHECK_THROWS_WITH(mine(Device::Cuda, ran), Catch::Contains("my_op: no kernel for device cuda"));
  CHECK_FALSE(ran);
  mine(Device::Cpu, ran);
  CHECK(ran);
}

TEST_CASE("a tensor goes to the device, and its gradient comes back", "[device]") {
  const Tensor here = Tensor(Array::full({4}, 3, DType::F32)).set_requires_grad();
  const Tensor there = here.to(Device::Cuda);
  CHECK(there.device() == Device::Cuda);
  sum(there * there).backward();
  CHECK(here.grad().device() == Device::Cpu);
  CHECK(here.grad().to_vector() == std::vector<double>(4, 6.0));
}

TEST_CASE("a refusal that was caught is not the next launch's", "[device]") {
  const Array a = Array::zeros({100}, DType::F32, Device::Cuda);
  const std::int64_t too_much = std::int64_t{1} << 50;
  CHECK_THROWS_AS(cuda::StagingBuffer(too_much), Error);
  CHECK_NOTHROW(a.fill_(3));
  CHECK(a.at(99) == 3);
}
