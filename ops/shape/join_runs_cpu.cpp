#include "ops/shape/join_runs.h"

#include <cstring>
#include <vector>

#include "runtime/threads.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kStep = 32;  // bytes moved at once
constexpr std::int64_t kLongRun = 4096;

struct Run {
  const char* from;
  std::int64_t bytes;
};

bool lies_in(const Dims& order, const Array& a) {
  std::int64_t expected = 1;
  for (int i = order.size() - 1; i >= 0; --i) {
    const auto d = static_cast<int>(order[i]);
    if (a.size(d) > 1 && a.stride(d) != expected) return false;
    expected *= a.size(d);
  }
  return true;
}

// A call of the C library for each would take longer than the shorter ones. The last step overlaps the one
// before.
void move(char* to, const char* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i + kStep <= bytes; i += kStep) std::memcpy(to + i, from + i, kStep);
  if (bytes % kStep != 0) std::memcpy(to + bytes - kStep, from + bytes - kStep, kStep);
}

}  // namespace

bool join_runs(const Array& out, std::span<const Array> in, int dim, const Dims& order) {
  std::int64_t inner = size_of(out.dtype());
  std::int64_t outer = 1;
  bool before = true;
  for (const std::int64_t d : order) {
    if (d == dim) {
      before = false;
    } else {
      (before ? outer : inner) *= out.size(static_cast<int>(d));
    }
  }
  if (outer < 2) return false;
  std::vector<Run> runs;
  runs.reserve(in.size());
  for (const Array& a : in) {
    const std::int64_t bytes = a.size(dim) * inner;
    if (bytes == 0) continue;
    if (bytes < kStep || bytes > kLongRun || !lies_in(order, a)) return false;
    runs.push_back({static_cast<const char*>(a.raw()), bytes});
  }
  const std::int64_t step = out.size(dim) * inner;
  parallel_ranges(outer, out.numel(), [&](std::int64_t lo, std::int64_t hi) {
    for (std::int64_t o = lo; o < hi; ++o) {
      char* to = static_cast<char*>(out.raw()) + o * step;
      for (const Run& run : runs) {
        move(to, run.from + o * run.bytes, run.bytes);
        to += run.bytes;
      }
    }
  });
  return true;
}

}  // namespace tessera::cpu
