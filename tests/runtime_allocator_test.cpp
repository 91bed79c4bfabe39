// The caching allocator: alignment, counts, a steady state that takes nothing from the system, threads,
// backends.
#include <catch2/catch.hpp>
#include <cstdlib>

#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/graph.h"
#include "runtime/process.h"
#include "runtime/threads.h"

using namespace tessera;
using Catch::Matchers::Contains;

namespace {

AllocatorStats cpu() { return allocator_stats(Device::Cpu); }

// A backend in host memory that can run out, standing in for a device.
std::int64_t device_capacity = 1 << 20;
std::int64_t device_used = 0;
void* device_reserve(std::int64_t bytes) {
  if (device_used + bytes > device_capacity) return nullptr;
  device_used += bytes;
  return std::malloc(static_cast<std::size_t>(bytes));
}
void device_release(void* data, std::int64_t bytes) {
  device_used -= bytes;
  std::free(data);
}

// What a training step does to the allocator: sizes of all kinds, freed out of order.
void step(std::uint32_t seed) {
  std::mt19937 gen(seed);
  std::vector<Array> live;
  for (int i = 0; i < 400; ++i) {
    const std::int64_t n = std::int64_t{1} << (gen() % 20U);
    live.push_back(
        Array::empty({n + static_cast<std::int64_t>(gen() % static_cast<std::uint32_t>(n))}, DType::F32));
    if (live.size() > 40) live.erase(live.begin() + static_cast<std::ptrdiff_t>(gen() % live.size()));
  }
}

}  // namespace

TEST_CASE("blocks are aligned, distinct and as large as asked for") {
  std::vector<std::pair<char*, std::int64_t>> blocks;
  std::mt19937 gen(1);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t bytes = i < 1100 ? i : static_cast<std::int64_t>(gen() % 300000U);
    auto* p = static_cast<char*>(allocate_bytes(Device::Cpu, bytes));
    REQUIRE(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
    std::memset(p, i % 251, static_cast<std::size_t>(bytes));
    blocks.emplace_back(p, bytes);
  }
  bool intact = true;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::int64_t k = 0; k < blocks[i].second; ++k)
      intact = intact && static_cast<unsigned char>(blocks[i].first[k]) == i % 251;
  CHECK(intact);
  for (auto [p, bytes] : blocks) free_bytes(Device::Cpu, p, bytes);
  for (std::int64_t bytes : {std::int64_t{2} << 20, std::int64_t{5} << 20, (std::int64_t{2} << 20) + 1}) {
    void* p = allocate_bytes(Device::Cpu, bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % (std::uintptr_t{2} << 20) == 0);
    free_bytes(Device::Cpu, p, bytes);
  }
}

TEST_CASE("live, peak and counts") {
  const AllocatorStats before = cpu();
  reset_peak(Device::Cpu);
  {
    const Array a = Array::empty({1000}, DType::F32);
    CHECK(cpu().live_bytes == before.live_bytes + 4000);
    { const Array b = Array::empty({1 << 20}, DType::F64); }
    const Array view = a.slice(0, 0, 10);
    CHECK(cpu().live_blocks == before.live_blocks + 1);
  }
  const AllocatorStats after = cpu();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.live_blocks == before.live_blocks);
  CHECK(after.peak_live_bytes == before.live_bytes + 4000 + (8 << 20));
  CHECK(after.allocations == before.allocations + 2);
  reset_peak(Device::Cpu);
  CHECK(cpu().peak_live_bytes == before.live_bytes);
}

TEST_CASE("a steady state takes nothing from the system") {
  for (int i = 0; i < 8; ++i) step(5);
  const AllocatorStats before = cpu();
  for (int i = 0; i < 50; ++i) step(5);
  CHECK(cpu().system_allocations == before.system_allocations);
  CHECK(cpu().reserved_bytes == before.reserved_bytes);
  CHECK(cpu().live_bytes == before.live_bytes);
}

TEST_CASE("freed blocks serve smaller requests, and empty_cache gives them back") {
  empty_cache(Device::Cpu);
  const std::int64_t mib = 1 << 20;
  { const Array a = Array::empty({100 * mib}, DType::Bool); }
  const AllocatorStats one = cpu();
  { const Array a = Array::empty({80 * mib}, DType::Bool); }
  CHECK(cpu().system_allocations == one.system_allocations);
  { const Array a = Array::empty({40 * mib}, DType::Bool); }
  CHECK(cpu().system_allocations == one.system_allocations + 1);
  empty_cache(Device::Cpu);
  CHECK(cpu().reserved_bytes <= one.reserved_bytes - 100 * mib);
}

TEST_CASE("out of memory names what was asked for and what is live") {
  CHECK_THROWS_WITH(allocate_bytes(Device::Cpu, std::int64_t{1} << 59),
                    Contains("out of memory on device cpu: 576460752303423488 bytes were asked for"));
  CHECK_THROWS_AS(allocate_bytes(Device::Cpu, std::int64_t{1} << 62), Error);
  CHECK_THROWS_AS(allocate_bytes(Device::Cpu, -1), Error);
  const Array fine = Array::zeros({10}, DType::F32);
  CHECK(fine.at(9) == 0);
}

TEST_CASE("meta counts and holds nothing") {
  const AllocatorStats before = allocator_stats(Device::Meta);
  {
    const Array a = Array::empty({std::int64_t{1} << 40}, DType::F32, Device::Meta);
    CHECK(allocator_stats(Device::Meta).live_bytes == before.live_bytes + (std::int64_t{1} << 42));
  }
  const AllocatorStats after = allocator_stats(Device::Meta);
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.peak_live_bytes ==
        std::max(before.peak_live_bytes, before.live_bytes + (std::int64_t{1} << 42)));
  CHECK(after.system_allocations == 0);
  CHECK(after.reserved_bytes == 0);
}

TEST_CASE("another device's memory plugs in") {
  CHECK_THROWS_AS(allocate_bytes(Device::Cuda, 8), Error);
  set_memory_backend(Device::Cuda, {&device_reserve, &device_release, false});
  void* a = allocate_bytes(Device::Cuda, 100000);
  CHECK(allocator_stats(Device::Cuda).live_bytes == 100000);
  CHECK_THROWS_AS(set_memory_backend(Device::Cuda, {}), Error);
  free_bytes(Device::Cuda, a, 100000);
  CHECK(device_used > 0);
  // What is cached goes back before the device is said to be full.
  void* b = allocate_bytes(Device::Cuda, 1000000);
  CHECK_THROWS_WITH(allocate_bytes(Device::Cuda, 200000),
                    Contains("out of memory on device cuda: 200000 bytes were asked for, 1000000 are live"));
  free_bytes(Device::Cuda, b, 1000000);
  empty_cache(Device::Cuda);
  CHECK(device_used == 0);
  CHECK(allocator_stats(Device::Cuda).reserved_bytes == 0);
  set_memory_backend(Device::Cuda, {});
}

TEST_CASE("threads allocate and free each other's blocks") {
  auto work = [](std::uint32_t seed, std::vector<Array>* out, std::vector<Array>* in) {
    in->clear();
    std::mt19937 gen(seed);
    for (int i = 0; i < 3000; ++i) {
      Array a = Array::empty({static_cast<std::int64_t>(gen() % 3000U)}, DType::F32);
      if (a.numel() > 0) a.data<float>()[a.numel() - 1] = static_cast<float>(seed);
      if (i % 10 == 0) out->push_back(a);
    }
  };
  const AllocatorStats before = cpu();
  std::vector<std::vector<Array>> hands(4);
  std::int64_t reserved = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<Array>> next(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t)
      threads.emplace_back(work, static_cast<std::uint32_t>(t), &next[t], &hands[(t + 1) % 4]);
    for (auto& t : threads) t.join();
    hands = std::move(next);
    if (round == 9) reserved = cpu().reserved_bytes;
  }
  // Threads that end give their blocks back: new ones live on them.
  CHECK(cpu().reserved_bytes <= reserved + (8 << 20));
  hands.clear();
  CHECK(cpu().live_bytes == before.live_bytes);
  CHECK(cpu().live_blocks == before.live_blocks);
}

TEST_CASE("a private pool keeps its blocks, and what was given back meanwhile, to itself") {
  constexpr std::int64_t kBytes = 200'000;
  const auto take = [] { return allocate_bytes(Device::Cpu, kBytes); };
  const auto give = [](void* data) { free_bytes(Device::Cpu, data, kBytes); };
  void* cached = take();
  void* read = take();
  give(cached);
  const int pool = make_private_pool(Device::Cpu);
  const std::int64_t from_system = cpu().system_allocations;
  begin_private_pool(Device::Cpu, pool);
  void* first = take();
  CHECK(cpu().system_allocations == from_system);  // what is cached serves
  give(first);
  CHECK(take() == first);  // used again in the pool
  give(read);
  void* second = take();
  CHECK(second != read);
  end_private_pool(Device::Cpu);
  give(first);
  std::set<void*> others;
  for (int i = 0; i < 50; ++i) others.insert(take());
  for (void* own : {first, second, read}) CHECK(others.count(own) == 0);
  release_private_pool(Device::Cpu, pool);
  give(second);  // outlived its pool
  std::set<void*> later;
  for (int i = 0; i < 50; ++i) later.insert(take());
  for (void* own : {first, second, read}) CHECK(later.count(own) == 1);
  for (void* block : others) give(block);
  for (void* block : later) give(block);
}

TEST_CASE("a graph needs a device") {
  if (is_available(Device::Cuda)) return;
  CudaGraph graph;
  CHECK_THROWS_WITH(graph.capture_begin(), Contains("CudaGraph: device cuda was given"));
  CHECK_THROWS_WITH(graph.replay(), Contains("holds nothing"));
  CHECK_FALSE(graph.captured());
}

TEST_CASE("the process knows its memory and its cores") {
  CHECK(resident_bytes() > 1 << 20);
  const std::int64_t before = resident_bytes();
  const Array a = Array::full({64 << 20}, 1, DType::Bool);
  CHECK(resident_bytes() >= before + (32 << 20));
  CHECK(peak_resident_bytes() >= resident_bytes());
  CHECK(available_cores() >= 1);
  const int threads = thread_count();
  CHECK(threads >= 1);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int mine = available_cores();
    set_default_threads(1000, mine);
    CHECK(thread_count() == 1);
    set_default_threads(2, 2 * mine);  // the other rank is bound elsewhere
    CHECK(thread_count() == mine);
    set_default_threads(1, 2 * mine);
    CHECK(thread_count() == mine);
    set_default_threads(4, 4 * mine + 3);
    CHECK(thread_count() == mine);
  } else {
    set_default_threads(1000, 1);
    CHECK(thread_count() == threads);
  }
  set_thread_count(3);
  CHECK(thread_count() == 3);
  set_default_threads(1, 1);
  CHECK(thread_count() == 3);
  set_thread_count(threads);
  CHECK_THROWS_AS(set_thread_count(0), Error);
  CHECK_THROWS_AS(set_default_threads(0, 1), Error);
}
