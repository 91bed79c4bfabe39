// Faults that people have met elsewhere, as small cases with known results: thin and empty shards, uneven
// cuts under strides, periodic axes of few ranks, corners of two cut axes, strided buffers.
#include <catch2/catch.hpp>

#include "comm/mpi.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;

Values counted(std::int64_t n, double first) {
  Values v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(first + static_cast<double>(i));
  return v;
}

void check_close(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    CHECK(std::abs(got[i] - expected[i]) <= 1e-12 * std::max(1.0, std::abs(expected[i])));
  }
}

Tensor sharded(const Values& values, const SpecPtr& spec) {
  const auto value = [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  Tensor t(local_part(*spec, spec->mesh().rank(), value, DType::F64), spec);
  t.set_requires_grad();
  return t;
}

Tensor weight(const Values& values, const Dims& sizes) {
  Tensor w = tensor(values, sizes, DType::F64);
  w.set_requires_grad();
  return w;
}

void backward_with_ramp(const Tensor& y) { y.backward(tensor(counted(y.numel(), 1), y.sizes(), DType::F64)); }

// Cuts of n for this number of ranks: the given ones where they fit, and random ones.
std::vector<std::vector<std::int64_t>> cuts_for(Random& random, std::int64_t n,
                                                const std::vector<std::vector<std::int64_t>>& given) {
  std::vector<std::vector<std::int64_t>> list;
  const int ranks = test_world().size();
  for (const auto& cut : given)
    if (static_cast<int>(cut.size()) == ranks) list.push_back(cut);
  for (int i = 0; i < 4; ++i) list.push_back(random_lengths(random, n, ranks));
  return list;
}

struct StridedRow {
  ConvOptions options;
  std::int64_t kernel;
  Values y, dx, dw;
};

}  // namespace

TEST_CASE("strides, dilation and any kernel over uneven cuts", "[mesh]") {
  auto random = test_random(40);
  const std::vector<StridedRow> rows{
      {{.stride = {2}, .padding = {1}},
       3,
       {3, 14, 26, 38, 50},
       {2, 5, 4, 9, 6, 13, 8, 17, 10, 15},
       {66, 80, 95}},
      {{.stride = {3}}, 3, {8, 26, 44}, {1, 2, 3, 2, 4, 6, 3, 6, 9, 0}, {24, 30, 36}},
      {{.padding = {2}},
       5,
       {14, 26, 40, 55, 70, 85, 100, 115, 80, 50},
       {10, 20, 35, 50, 65, 80, 95, 110, 114, 106},
       {224, 276, 330, 285, 240}},
      {{.padding = {2}, .dilation = {2}},
       3,
       {6, 11, 16, 22, 28, 34, 40, 46, 22, 25},
       {5, 8, 14, 20, 26, 32, 38, 44, 39, 44},
       {224, 330, 240}}};
  const DeviceMesh mesh = all_meshes().front();
  for (const auto& cut : cuts_for(random, 10, {{4, 3, 3}, {1, 7, 2}, {6, 4}}))
    for (const StridedRow& row : rows) {
      const Tensor x = sharded(counted(10, 0), ShardSpec::from_lengths(mesh, {Shard(2)}, {1, 1, 10}, {cut}));
      const Tensor w = weight(counted(row.kernel, 1), {1, 1, row.kernel});
      const Tensor y = conv1d(x, w, Tensor(), row.options);
      INFO(x.spec()->str());
      check_close(y.to_vector(), row.y);
      backward_with_ramp(y);
      check_close(x.grad().to_vector(), row.dx);
      check_close(w.grad().to_vector(), row.dw);
    }
}

TEST_CASE("an axis shorter than the ranks: empty shards take part", "[mesh]") {
  auto random = test_random(41);
  const DeviceMesh mesh = all_meshes().front();
  for (const auto& cut : cuts_for(random, 3, {{1, 1, 1, 0}, {0, 1, 2, 0}, {0, 0, 0, 3}, {0, 3}, {3, 0}})) {
    const Tensor x = sharded({2, 3, 5}, ShardSpec::from_lengths(mesh, {Shard(2)}, {1, 1, 3}, {cut}));
    const Tensor w = weight({1, 10, 100}, {1, 1, 3});
    const Tensor y = conv1d(x, w, Tensor(), {.padding = {1}});
    CHECK(y.local().size(2) == cut[static_cast<std::size_t>(mesh.rank())]);
    check_close(y.to_vector(), {320, 532, 53});
    backward_with_ramp(y);
    check_close(x.grad().to_vector(), {12, 123, 230});
    check_close(w.grad().to_vector(), {13, 23, 13});
  }
}

TEST_CASE("periodic axes with one peer on both sides", "[mesh]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {1, ranks});
  for (const Placements& p : {Placements{Shard(2), Shard(3)}, Placements{Shard(3), Shard(2)}}) {
    const Tensor x = sharded(counted(16, 0), ShardSpec::make(mesh, p, {1, 1, 4, 4}));
    const Tensor w = weight(counted(9, 1), {1, 1, 3, 3});
    const Tensor y = conv2d(x, w, Tensor(), {.padding = {1}, .padding_mode = PaddingMode::Circular});
    check_close(y.to_vector(),
                {222, 219, 264, 237, 306, 303, 348, 321, 486, 483, 528, 501, 282, 279, 324, 297});
    backward_with_ramp(y);
    check_close(x.grad().to_vector(),
                {423, 396, 441, 438, 219, 192, 237, 234, 399, 372, 417, 414, 483, 456, 501, 498});
    check_close(w.grad().to_vector(), {952, 976, 952, 1336, 1360, 1336, 952, 976, 952});
  }
}

TEST_CASE("corners of two cut axes, one of them periodic", "[mesh]") {
  auto random = test_random(42);
  for (const DeviceMesh& mesh : all_meshes()) {
    if (mesh.ndim() < 2) continue;
    for (int trial = 0; trial < 4; ++trial) {
      std::vector<std::vector<std::int64_t>> cuts{random_lengths(random, 4, mesh.size(0)),
                                                  random_lengths(random, 4, mesh.size(1))};
      if (trial == 0) cuts = {{}, {}};
      if (trial == 1 && mesh.size(0) == 2 && mesh.size(1) == 2) cuts = {{3, 1}, {1, 3}};
      const Tensor x =
          sharded(counted(16, 0), ShardSpec::from_lengths(mesh, {Shard(2), Shard(3)}, {1, 1, 4, 4}, cuts));
      INFO(x.spec()->str());
      const Tensor w = weight(counted(9, 1), {1, 1, 3, 3});
      const Tensor y = conv2d(pad(x, {1, 1, 0, 0}, PadMode::Circular), w, Tensor(), {.padding = {1, 0}});
      check_close(y.to_vector(),
                  {144, 139, 178, 157, 306, 303, 348, 321, 486, 483, 528, 501, 252, 253, 274, 259});
      backward_with_ramp(y);
      check_close(x.grad().to_vector(),
                  {77, 62, 83, 84, 219, 192, 237, 234, 399, 372, 417, 414, 467, 446, 485, 480});
      check_close(w.grad().to_vector(), {818, 836, 818, 1336, 1360, 1336, 866, 884, 866});
    }
  }
}

TEST_CASE("even kernels with one more zero on the right", "[mesh]") {
  auto random = test_random(43);
  const DeviceMesh mesh = all_meshes().front();
  for (const auto& cut : cuts_for(random, 8, {{3, 3, 2}})) {
    const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(2)}, {1, 1, 8}, {cut});
    const Tensor x = sharded(counted(8, 1), spec);
    check_close(conv1d(pad(x, {0, 1}), weight({1, 10}, {1, 1, 2}), Tensor()).to_vector(),
                {21, 32, 43, 54, 65, 76, 87, 8});
    check_close(conv1d(pad(x, {1, 2}), weight({1, 10, 100, 1000}, {1, 1, 4}), Tensor()).to_vector(),
                {3210, 4321, 5432, 6543, 7654, 8765, 876, 87});
  }
}

TEST_CASE("a sum over ranks of a strided view leaves the rest alone", "[mesh]") {
  const Communicator world = test_world();
  Values values = counted(12, 0);
  for (double& v : values) v *= world.rank() + 1;
  const Array base = Array::from(values, {3, 4}, DType::F64);
  world.all_reduce(base.slice(1, 1, 2), ReduceOp::Sum).wait();
  const double sum = world.size() * (world.size() + 1) / 2.0;
  for (int i = 0; i < 12; ++i) {
    const bool inside = i % 4 == 1 || i % 4 == 2;
    CHECK(base.at(i) == i * (inside ? sum : world.rank() + 1.0));
  }
}

TEST_CASE("a roll by anything is one exchange, and its gradient rolls back", "[mesh]") {
  auto random = test_random(44);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(5); ++trial) {
      const Dims sizes{random_int(random, 1, 6), random_int(random, 1, 6)};
      const Tensor x = sharded(counted(numel_of(sizes), 0), random_spec(random, mesh, sizes));
      const Dims shifts{random_int(random, -9, 9), random_int(random, -9, 9)};
      INFO(x.spec()->str() << " rolled by " << shifts.str());
      const auto rolled = [&](std::int64_t sign) {
        Values v(static_cast<std::size_t>(numel_of(sizes)));
        for (std::int64_t i = 0; i < sizes[0]; ++i)
          for (std::int64_t j = 0; j < sizes[1]; ++j) {
            const std::int64_t a = (((i + sign * shifts[0]) % sizes[0]) + sizes[0]) % sizes[0];
            const std::int64_t b = (((j + sign * shifts[1]) % sizes[1]) + sizes[1]) % sizes[1];
            v[static_cast<std::size_t>(a * sizes[1] + b)] = static_cast<double>(i * sizes[1] + j);
          }
        return v;
      };
      mesh.comm().recorder().start();
      const Tensor y = roll(x, shifts, {0, 1});
      mesh.comm().recorder().stop();
      CHECK(mesh.comm().recorder().records().size() <= 1);
      check_close(y.to_vector(), rolled(1));
      y.backward(tensor(counted(y.numel(), 0), sizes, DType::F64));
      check_close(x.grad().to_vector(), rolled(-1));
    }
}

TEST_CASE("a host gives the library two of its ranks and waits with the third", "[mesh]") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 3) return;
  const bool inside = rank == 1 || rank == 2;
  for (const bool reversed : {false, true}) {
    // The host is ready for anything from anybody all the while.
    int caught = -1;
    MPI_Request anything = MPI_REQUEST_NULL;
    MPI_Irecv(&caught, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &anything);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, inside ? 0 : MPI_UNDEFINED, reversed ? -rank : rank, &host);
    if (inside) {
      const DeviceMesh mesh(communicator_from_mpi(host), {{"domain", 2}});
      MPI_Comm_free(&host);
      const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(2)}, {1, 1, 10}, {{6, 4}});
      const Tensor x = sharded(counted(10, 0), spec);
      const Tensor w = weight({1, 2, 3}, {1, 1, 3});
      const Tensor y = conv1d(x, w, Tensor(), {.stride = {2}, .padding = {1}});
      check_close(y.to_vector(), {3, 14, 26, 38, 50});
      backward_with_ramp(y);
      check_close(x.grad().to_vector(), {2, 5, 4, 9, 6, 13, 8, 17, 10, 15});
      check_close(w.grad().to_vector(), {66, 80, 95});
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int done = 0;
    MPI_Test(&anything, &done, MPI_STATUS_IGNORE);
    CHECK(done == 0);
    MPI_Barrier(MPI_COMM_WORLD);  // nobody has sent yet
    const int mine = 1000 + rank;
    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
    MPI_Wait(&anything, MPI_STATUS_IGNORE);
    CHECK(caught == 1000 + (rank + size - 1) % size);
  }
}

TEST_CASE("messages of more than one piece: every element arrives, every term is added", "[mesh]") {
  const DeviceMesh mesh = all_meshes().front();
  const std::int64_t n = 5 * 1000 + 16;
  mesh.comm().set_message_limit(1000);
  for (const Placement& from : {Placement(Partial()), Placement(Shard(0)), Placement(Replicate())})
    for (const Placement& to : {Placement(Replicate()), Placement(Shard(1)), Placement(Shard(0))}) {
      const SpecPtr before = ShardSpec::make(mesh, {from}, {n, 2});
      const SpecPtr after = ShardSpec::make(mesh, {to}, {n, 2});
      INFO(before->str() << " to " << after->str());
      const Array ones = Array::full(before->local_sizes(), 1, DType::F32);
      const std::vector<double> got = redistribute(ones, before, after).to_vector();
      CHECK(got == std::vector<double>(got.size(), from.is_partial() ? mesh.size() : 1));
    }
  mesh.comm().set_message_limit(std::int64_t{1} << 30);
}
