// scatter: any source, uneven and empty cuts, one exchange from the source, the same refusal on every rank.
#include "comm/virtual.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"
#include "train/scatter.h"

namespace tessera {
TEST_CASE("scatter from every rank, random cuts", "[train][scatter]") {
  auto random = test_random(21);
  const int ranks = test_world().size();
  for (const DeviceMesh& mesh : domain_meshes()) {
    for (int source = 0; source < ranks; ++source) {
      for (int round = 0; round < 5; ++round) {
        const Dims sizes{random_int(random, 0, 3), random_int(random, 1, 9), random_int(random, 0, 9)};
        const Tensor whole = here(random_tensor(random, sizes, round % 2 == 0 ? DType::F32 : DType::F64));
        Placements placements;
        std::vector<std::vector<std::int64_t>> lengths;
        for (int a = 0; a < mesh.ndim(); ++a) {
          const int dim = 1 + (a + round) % 2;
          placements.push_back(round == 4 ? Replicate() : Shard(dim));
          lengths.push_back(round == 4 ? std::vector<std::int64_t>{}
                                       : random_lengths(random, sizes[dim], mesh.size(a)));
        }
        // The source's memory order does not matter; other ranks pass nothing.
        const Tensor strided = transpose(contiguous(transpose(whole, 0, 2)), 0, 2);
        const Tensor x =
            train::scatter(mesh.rank() == source ? strided : Tensor(), source, mesh, placements, lengths);
        CHECK(x.spec() == ShardSpec::from_lengths(mesh, placements, sizes, lengths));
        CHECK(x.dtype() == whole.dtype());
        CHECK(x.device() == test_device());
        CHECK(x.local().to_vector() == redistribute(whole, x.spec()).local().to_vector());
      }
    }
  }
}

TEST_CASE("scatter sends each rank its own box only", "[train][scatter]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  const Dims sizes{2, 8};
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  const Tensor x = train::scatter(mesh.rank() == 0 ? here(ones(sizes)) : Tensor(), 0, mesh, {Shard(1)});
  recorder.stop();
  const std::int64_t own = 2 * x.local().size(1);
  CHECK(recorder.bytes("exchange") == (mesh.rank() == 0 ? (16 - own) * 4 : 0));
  std::int64_t messages = 0;
  for (const CommRecord& r : recorder.records())
    if (r.kind == "exchange") messages += r.messages;
  CHECK(messages == (mesh.rank() == 0 ? ranks - 1 : 0));
}

TEST_CASE("a rank that only records scatters what it has itself", "[train][scatter]") {
  const DeviceMesh mesh(recording_communicator(3, 9), {{"domain", 9}});
  CHECK(train::scatter(ones({18, 2}), 3, mesh, {Shard(0)}).local().sizes() == Dims{2, 2});
  CHECK_THAT(refusal([&] { train::scatter(Tensor(), 0, mesh, {Shard(0)}); }),
             Catch::Contains("only records") && Catch::Contains("source 0"));
}

TEST_CASE("scatter refuses on every rank alike", "[train][scatter]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  const int last = ranks - 1;
  const Tensor mine = mesh.rank() == last ? here(ones({2, 4})) : Tensor();
  const Placements rows{Shard(0)};
  std::vector<std::string> texts{
      refusal([&] { train::scatter(Tensor(), last, mesh, rows); }),
      refusal([&] { train::scatter(mine, ranks, mesh, rows); }),
      refusal([&] { train::scatter(mine, last, mesh, {Partial()}); }),
      refusal([&] { train::scatter(mine, last, mesh, {Shard(5)}); }),
      refusal([&] { train::scatter(mine, last, mesh, rows, {std::vector<std::int64_t>(4, 9)}); }),
      refusal([&] { train::scatter(mine, last, mesh, {}); })};
  CHECK_THAT(texts[0], Catch::Contains("gave no tensor"));
  CHECK_THAT(texts[1], Catch::Contains("is no rank of the mesh"));
  CHECK_THAT(texts[2], Catch::Contains("only Shard and Replicate"));
  if (ranks > 1) {
    texts.push_back(
        refusal([&] { train::scatter(mine, last, mesh, {mesh.rank() == 1 ? Shard(1) : Shard(0)}); }));
    CHECK_THAT(texts.back(), Catch::Contains("ranks must pass the same"));
  }
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(!text.empty());
    CHECK(same_everywhere(text));
  }
}

}  // namespace tessera
