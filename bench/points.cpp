// Nearest neighbours in a cloud that is cut over the ranks, beside a plain search of one rank's share of the
// queries among all points (what a rank would do if it had everything): once with the cloud ordered by place,
// as files of meshes are, and once with points and queries dealt out at random.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/groups.h"
#include "comm/recorder.h"
#include "ops/ops.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kNeighbors = 16;
constexpr std::int64_t kDims = 3;

// Uniform in the unit cube, the same on every rank.
Array cloud(std::int64_t points, bool ordered) {
  Generator generator(11);
  Array x = rand({points, kDims}, generator).local();
  if (!ordered) return x;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(points));
  std::iota(rows.begin(), rows.end(), 0);
  const auto first = [&](std::int64_t row) { return x.data<float>()[row * kDims]; };
  std::sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) { return first(a) < first(b); });
  Array sorted = Array::empty(x.sizes(), x.dtype());
  for (std::int64_t i = 0; i < points; ++i)
    std::copy_n(x.data<float>() + rows[static_cast<std::size_t>(i)] * kDims, kDims,
                sorted.data<float>() + i * kDims);
  return sorted;
}

double bytes_sent(const Communicator& world, const std::function<void()>& f) {
  const std::int64_t before = world.recorder().totals().bytes;
  f();
  const Array sent =
      Array::full({1}, static_cast<double>(world.recorder().totals().bytes - before), DType::F64);
  world.all_reduce(sent, ReduceOp::Sum).wait();
  return sent.at(0);
}

void measure(const Settings& settings, Report& report, bool ordered, std::int64_t points) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  const Tensor all(cloud(points, ordered));
  const Tensor cut =
      redistribute(all, ShardSpec::make(mesh, {Shard(0)}, all.sizes())).detach().set_requires_grad();
  const Tensor share(cut.local());
  const auto forward = [&] { knn(cut, cut, kNeighbors); };
  const auto both = [&] {
    cut.zero_grad();
    const Tensor distances = knn(cut, cut, kNeighbors).distances;
    distances.backward(ones_like(distances));
  };
  const auto timings = interleaved(
      settings,
      {repeated(
           settings, "own queries, all points", [&] { knn(all, share, kNeighbors); }, 0.05),
       repeated(settings, "cut", forward, 0.05), repeated(settings, "cut, with gradient", both, 0.05)});
  report.add({.group = "points",
              .name = fmt::format("{}, {:.3f} MB sent", ordered ? "by place" : "at random",
                                  1e-6 * bytes_sent(settings.world, forward)),
              .shape = fmt::format("{} x {}, k {}", points, kDims, kNeighbors),
              .timings = timings});
}

}  // namespace

void points(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 20'000 : 100'000;
  measure(settings, report, true, n);
  measure(settings, report, false, n);
}

}  // namespace tessera::bench
