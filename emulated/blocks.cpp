#include "emulated/blocks.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

namespace tessera::emulated {
namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr int kLaneBytes = 16;

struct Turn {
  context::fiber caller;
};

}  // namespace

void ThreadOfBlock::barrier() const {
  auto* turn = static_cast<Turn*>(fiber);
  turn->caller = std::move(turn->caller).resume();
}

void end_misaligned(const void* p, std::size_t alignment) {
  std::fprintf(stderr, "emulated device: a kernel goes to %p as if it were a multiple of %zu\n", p,
               alignment);
  std::abort();
}

void run_threads_in_turn(const BlockShape& shape, const std::function<void(const ThreadOfBlock&)>& body) {
  static auto* stacks = new context::pooled_fixedsize_stack(kStackBytes);
  const auto n = static_cast<std::size_t>(shape.threads);
  std::vector<char> shared(static_cast<std::size_t>(shape.shared_bytes) + 1);
  std::vector<char> lanes(n * kLaneBytes);
  std::vector<Turn> turns(n);
  std::vector<context::fiber> fibers(n);
  for (std::int64_t block = 0; block < shape.blocks; ++block) {
    // Shared memory holds nothing of use when a block begins.
    std::fill(shared.begin(), shared.end(), static_cast<char>(0xFF));
    for (std::size_t t = 0; t < n; ++t) {
      fibers[t] = context::fiber(std::allocator_arg, *stacks, [&, t, block](context::fiber&& caller) {
        turns[t].caller = std::move(caller);
        body({block, shape.blocks, static_cast<int>(t), shape.threads, shared.data(), lanes.data(),
              &turns[t]});
        return std::move(turns[t].caller);
      });
    }
    for (std::size_t left = n; left > 0;) {
      left = 0;
      for (context::fiber& f : fibers) {
        if (!f) continue;
        f = std::move(f).resume();
        if (f) ++left;
      }
    }
  }
}

}  // namespace tessera::emulated
