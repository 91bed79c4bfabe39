// Attention with queries, keys and values cut along the tokens, forward and backward, beside plain attention
// of as many queries over all keys: the same work on every rank.
#include <fmt/format.h>

#include "bench/groups.h"
#include "ops/ops.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kHeads = 8;
constexpr std::int64_t kHeadSize = 64;

struct Problem {
  Tensor q, k, v, dout;

  void run() const {
    for (const Tensor* t : {&q, &k, &v}) t->zero_grad();
    scaled_dot_product_attention(q, k, v).backward(dout);
  }
};

Problem make_problem(std::int64_t queries, std::int64_t keys, const DeviceMesh& mesh) {
  Generator generator(9);
  auto make = [&](std::int64_t tokens) {
    const Dims sizes{1, kHeads, tokens, kHeadSize};
    return randn(sizes, generator, DType::F32,
                 mesh.defined() ? ShardSpec::make(mesh, {Shard(2)}, sizes) : nullptr);
  };
  Problem p{make(queries), make(keys), make(keys), make(queries)};
  for (Tensor* t : {&p.q, &p.k, &p.v}) t->set_requires_grad();
  return p;
}

}  // namespace

void ring(const Settings& settings, Report& report) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  for (const std::int64_t tokens : {std::int64_t{256}, std::int64_t{1024}, std::int64_t{4096}}) {
    if (settings.quick && tokens > 256) continue;
    const Problem cut = make_problem(tokens, tokens, mesh);
    const std::int64_t queries = cut.q.local().size(2);
    const Problem local = make_problem(queries, tokens, DeviceMesh());
    const auto timings = interleaved(settings, {repeated(
                                                    settings, "local", [&] { local.run(); }, 0.05),
                                                repeated(
                                                    settings, "ring", [&] { cut.run(); }, 0.05)});
    report.add({.group = "ring",
                .name = fmt::format("{} tokens, forward + backward", tokens),
                .shape = cut.q.sizes().str(),
                .timings = timings,
                .work = {14.0 * static_cast<double>(kHeads * queries * tokens * kHeadSize), "GF/s"}});
  }
}

}  // namespace tessera::bench
