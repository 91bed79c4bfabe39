// Exchanges under MPI: every cell that arrives holds its own global index, what nobody sends stays untouched,
// and running a plan backwards is its transpose.
#include <catch2/catch.hpp>
#include <set>

#include "runtime/copy.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

constexpr double kUntouched = -7.0;

// Values that are exact in the dtype, terms of sums among them.
std::function<double(std::int64_t)> coded(DType dtype) {
  if (dtype == DType::Bool) return [](std::int64_t i) { return static_cast<double>(i % 3 == 0); };
  if (is_half(dtype)) return [](std::int64_t i) { return static_cast<double>(i % 50); };
  return [](std::int64_t i) { return static_cast<double>(i + 1); };
}

// A view into a larger array of marks, dims stored in any order.
struct Framed {
  Array base;
  Array view;
};
Framed framed(Random& random, const Dims& sizes, DType dtype) {
  std::vector<std::int64_t> order;
  for (int d = 0; d < sizes.size(); ++d) order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  Dims stored;
  Dims back = Dims::filled(sizes.size(), 0);
  for (int d = 0; d < sizes.size(); ++d) {
    stored.push_back(sizes[static_cast<int>(order[static_cast<std::size_t>(d)])] + 2);
    back[static_cast<int>(order[static_cast<std::size_t>(d)])] = d;
  }
  const Array base = Array::full(stored, kUntouched, dtype);
  return {base, base.permute(back).box(Dims::filled(sizes.size(), 1), sizes)};
}

// Whether everything around the view still has its mark.
bool frame_untouched(const Framed& f) {
  const double mark = Array::full({1}, kUntouched, f.base.dtype()).at(0);
  const auto changed = [mark](const Array& a) {
    const std::vector<double> values = a.to_vector();
    return std::count_if(values.begin(), values.end(), [mark](double v) { return v != mark; });
  };
  return changed(f.base) == changed(f.view);
}

struct HaloCase {
  SpecPtr from;
  std::vector<LocalLayout> to;
  ExchangePlan plan;
};

// Every rank wants a random window of every dim, padded in any way, reaching as far as it likes.
HaloCase random_halo(Random& random, const DeviceMesh& mesh) {
  const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 1, 3)), 7);
  HaloCase c{random_spec(random, mesh, sizes), {}, {}};
  std::vector<PaddingMode> modes;
  for (int d = 0; d < sizes.size(); ++d) modes.push_back(random_mode(random));
  for (int r = 0; r < mesh.size(); ++r) {
    LocalLayout layout;
    for (int d = 0; d < sizes.size(); ++d) {
      const std::int64_t lo = random_int(random, -4, sizes[d]);
      const Interval need{lo, lo + random_int(random, 0, sizes[d] + 3)};
      layout.dims.push_back(window_segments(need, sizes[d], modes[static_cast<std::size_t>(d)]));
      layout.sizes.push_back(need.length());
    }
    c.to.push_back(layout);
  }
  const auto matches = [&](int a, int b) {
    for (int axis = 0; axis < mesh.ndim(); ++axis)
      if (!c.from->placement(axis).is_shard() && mesh.coordinate(axis, a) != mesh.coordinate(axis, b))
        return false;
    return true;
  };
  c.plan = plan_exchange({mesh.size(), mesh.rank(), [&](int r) { return layout_of(*c.from, r); },
                          [&](int r) { return c.to[static_cast<std::size_t>(r)]; }, matches});
  return c;
}

double dot(const Array& a, const Array& b) {
  const std::vector<double> x = a.to_vector();
  const std::vector<double> y = b.to_vector();
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}
double sum_over_ranks(double mine) {
  const Array a = Array::full({1}, mine, DType::F64);
  test_world().all_reduce(a, ReduceOp::Sum).wait();
  return a.at(0);
}
// Other values on every rank.
Array noise(std::uint64_t stream, const Dims& sizes) {
  std::mt19937_64 random(test_seed() * 1000 + stream * 64 + static_cast<std::uint64_t>(test_world().rank()));
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (double& v : values) v = uniform(random);
  return Array::from(values, sizes, DType::F64);
}
void check_transposed(double forward, double backward) {
  const double a = sum_over_ranks(forward);
  const double b = sum_over_ranks(backward);
  CHECK(std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(a)));
}

}  // namespace

TEST_CASE("redistribute between any two specs keeps the global tensor", "[mesh]") {
  auto random = test_random(30);
  const std::vector<DType> dtypes{DType::F32, DType::F64, DType::BF16, DType::F16,
                                  DType::I64, DType::I32, DType::Bool};
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(60); ++trial) {
      const DType dtype = dtypes[static_cast<std::size_t>(trial) % dtypes.size()];
      const Dims sizes = random_sizes(random, static_cast<int>(random_int(random, 0, 3)), 6);
      const SpecKinds kinds{.partial = dtype != DType::Bool};
      const SpecPtr from = random_spec(random, mesh, sizes, kinds);
      const SpecPtr to = random_spec(random, mesh, sizes, kinds);
      INFO(name_of(dtype) << " " << from->str() << " to " << to->str());
      Array local = local_part(*from, mesh.rank(), coded(dtype), dtype);
      const Framed source = framed(random, local.sizes(), dtype);
      if (chance(random, 50)) {
        source.view.copy_(local);
        local = source.view;
      }
      const std::vector<double> before = local.to_vector();
      const Array moved = redistribute(local, from, to);
      CHECK(moved.sizes() == to->local_sizes());
      const SpecPtr made = without_partial(*to);
      const Array value = redistribute(moved, to, made);
      CHECK(value.to_vector() == expected_part(*made, mesh.rank(), coded(dtype)));
      CHECK(local.to_vector() == before);
      CHECK(frame_untouched(source));
    }
}

TEST_CASE("halo cells hold their global index, the others keep what they had", "[mesh]") {
  auto random = test_random(31);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(40); ++trial) {
      const HaloCase c = random_halo(random, mesh);
      INFO(c.from->str());
      const Array from = local_part(*c.from, mesh.rank(), coded(DType::F32), DType::F32);
      const LocalLayout& mine = c.to[static_cast<std::size_t>(mesh.rank())];
      // Every rank has other strides; the order of packing is shared.
      const Framed to = framed(random, mine.sizes, DType::F32);
      Dims order;
      if (chance(random, 50)) {
        std::vector<std::int64_t> shuffled;
        for (int d = 0; d < mine.sizes.size(); ++d) shuffled.push_back(d);
        std::shuffle(shuffled.begin(), shuffled.end(), random);
        order = Dims(shuffled);
      }
      start_exchange(c.plan, mesh.comm(), to.view, from, order).finish();
      std::vector<double> expected;
      for (const std::int64_t i : global_indices(mine, c.from->sizes()))
        expected.push_back(i < 0 ? kUntouched : static_cast<double>(i + 1));
      CHECK(to.view.to_vector() == expected);
      CHECK(frame_untouched(to));
    }
}

TEST_CASE("two exchanges under way at once", "[mesh]") {
  auto random = test_random(32);
  const DeviceMesh mesh = all_meshes().back();
  for (int trial = 0; trial < trials(20); ++trial) {
    const HaloCase a = random_halo(random, mesh);
    const HaloCase b = random_halo(random, mesh);
    const Array from_a = local_part(*a.from, mesh.rank(), coded(DType::F64), DType::F64);
    const Array from_b = local_part(*b.from, mesh.rank(), coded(DType::I32), DType::I32);
    const Array to_a = Array::full(a.plan.to_sizes, kUntouched, DType::F64);
    const Array to_b = Array::full(b.plan.to_sizes, kUntouched, DType::I32);
    ExchangeInFlight first = start_exchange(a.plan, mesh.comm(), to_a, from_a);
    ExchangeInFlight second = start_exchange(b.plan, mesh.comm(), to_b, from_b);
    second.finish();
    first.finish();
    const auto expected = [&](const HaloCase& c) {
      std::vector<double> values;
      for (const std::int64_t i :
           global_indices(c.to[static_cast<std::size_t>(mesh.rank())], c.from->sizes()))
        values.push_back(i < 0 ? kUntouched : static_cast<double>(i + 1));
      return values;
    };
    CHECK(to_a.to_vector() == expected(a));
    CHECK(to_b.to_vector() == expected(b));
  }
}

TEST_CASE("a plan run backwards is its transpose", "[mesh]") {
  auto random = test_random(33);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(30); ++trial) {
      const HaloCase c = random_halo(random, mesh);
      INFO(c.from->str());
      const auto stream = static_cast<std::uint64_t>(trial);
      const Array x = noise(stream, c.plan.from_sizes);
      const Array y = noise(stream + 500, c.plan.to_sizes);
      const Array fx = Array::zeros(c.plan.to_sizes, DType::F64);
      const Array fty = Array::zeros(c.plan.from_sizes, DType::F64);
      run_exchange(c.plan, mesh.comm(), fx, x);
      run_adjoint(c.plan, mesh.comm(), fty, y);
      check_transposed(dot(fx, y), dot(x, fty));
      // It adds: a second run doubles.
      start_adjoint(c.plan, mesh.comm(), fty, y).finish();
      check_transposed(2 * dot(fx, y), dot(x, fty));
    }
}

TEST_CASE("redistributions of uncut axes run backwards too", "[mesh]") {
  auto random = test_random(34);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(20); ++trial) {
      const Dims sizes = random_sizes(random, 2, 6);
      const SpecPtr from = random_spec(random, mesh, sizes);
      const SpecPtr to = random_spec(random, mesh, sizes);
      const auto plan = redistribute_plan(from, to);
      const Array x = noise(static_cast<std::uint64_t>(trial), plan->from_sizes);
      const Array y = noise(static_cast<std::uint64_t>(trial) + 500, plan->to_sizes);
      const Array fx = Array::full(plan->to_sizes, std::nan(""), DType::F64);
      const Array fty = Array::zeros(plan->from_sizes, DType::F64);
      start_exchange(*plan, mesh.comm(), fx, x).finish();
      start_adjoint(*plan, mesh.comm(), fty, y).finish();
      check_transposed(dot(fx, y), dot(x, fty));
    }
}

TEST_CASE("collectives and their transposes", "[mesh]") {
  auto random = test_random(35);
  const Communicator world = test_world();
  for (int trial = 0; trial < trials(10); ++trial) {
    const auto stream = static_cast<std::uint64_t>(trial);
    const std::vector<std::int64_t> rows = random_lengths(random, random_int(random, 0, 12), world.size());
    std::int64_t total = 0;
    for (const std::int64_t r : rows) total += r;
    const std::int64_t mine = rows[static_cast<std::size_t>(world.rank())];
    const Array part = noise(stream, {mine, 3});
    const Array whole = noise(stream + 100, {total, 3});
    const Array gathered = Array::empty({total, 3}, DType::F64);
    const Array scattered = Array::empty({mine, 3}, DType::F64);
    world.all_gather_v(gathered, part, rows).wait();
    world.reduce_scatter_v(scattered, whole, rows, ReduceOp::Sum).wait();
    check_transposed(dot(gathered, whole), dot(part, scattered));

    const Array x = noise(stream + 200, {5});
    const Array y = noise(stream + 300, {5});
    const Array sx = x.clone();
    const Array sy = y.clone();
    world.all_reduce(sx, ReduceOp::Sum).wait();
    world.all_reduce(sy, ReduceOp::Sum).wait();
    check_transposed(dot(sx, y), dot(x, sy));
    // A broadcast's transpose: the sum, at the root.
    const int root = static_cast<int>(random_int(random, 0, world.size() - 1));
    const Array bx = x.clone();
    world.broadcast(bx, root).wait();
    check_transposed(dot(bx, y), world.rank() == root ? dot(x, sy) : 0.0);
  }
}

TEST_CASE("what the recorder counts is what the plan says", "[mesh]") {
  auto random = test_random(36);
  for (const DeviceMesh& mesh : all_meshes()) {
    Recorder& recorder = mesh.comm().recorder();
    for (int trial = 0; trial < trials(20); ++trial) {
      const Dims sizes = random_sizes(random, 2, 7);
      const SpecPtr from = random_spec(random, mesh, sizes);
      const SpecPtr to = random_spec(random, mesh, sizes);
      const Array local = local_part(*from, mesh.rank(), coded(DType::F32), DType::F32);
      recorder.start();
      redistribute(local, from, to);
      recorder.stop();
      INFO(from->str() << " to " << to->str());
      const auto plan = redistribute_plan(from, to);
      CHECK(recorder.bytes("exchange") == (same_layout(*from, *to) ? 0 : plan->sent_elements() * 4));
      CHECK(recorder.records().size() <= 1);
    }
  }
}

TEST_CASE("whatever is owed, there is one exchange, and one sum for every kind of reduction", "[mesh]") {
  auto random = test_random(38);
  for (const DeviceMesh& mesh : all_meshes()) {
    Recorder& recorder = mesh.comm().recorder();
    for (int trial = 0; trial < trials(40); ++trial) {
      const Dims sizes = random_sizes(random, 2, 7);
      const SpecPtr from = random_spec(random, mesh, sizes, {.partial = true});
      const SpecPtr to = random_spec(random, mesh, sizes, {.partial = true});
      const Array local = local_part(*from, mesh.rank(), coded(DType::F32), DType::F32);
      recorder.start();
      redistribute(local, from, to);
      recorder.stop();
      INFO(from->str() << " to " << to->str());
      std::set<ReduceOp> owed;
      for (const Placement& p : from->placements())
        if (p.is_partial()) owed.insert(p.op);
      const auto count = [&](std::string_view kind) {
        const auto& records = recorder.records();
        return std::count_if(records.begin(), records.end(),
                             [&](const CommRecord& r) { return r.kind == kind; });
      };
      CHECK(count("exchange") <= 1);
      CHECK(count("all_reduce") <= static_cast<std::ptrdiff_t>(owed.size()));
      CHECK(static_cast<std::ptrdiff_t>(recorder.records().size()) ==
            count("exchange") + count("all_reduce"));
    }
  }
}

TEST_CASE("terms of several reductions on one tensor", "[mesh]") {
  auto random = test_random(39);
  const SpecKinds kinds{.partial = true, .mixed = true, .replicate_percent = 50};
  std::vector<DeviceMesh> meshes = all_meshes();
  const int ranks = test_world().size();
  if (ranks == 4) meshes.push_back(mesh_over(test_world(), {2, 1, 2}));
  for (const DeviceMesh& mesh : meshes)
    for (int trial = 0; trial < trials(60); ++trial) {
      const Dims sizes = random_sizes(random, 2, 6);
      const SpecPtr from = random_spec(random, mesh, sizes, kinds);
      const SpecPtr to = random_spec(random, mesh, sizes, kinds);
      const SpecPtr made = without_partial(*to);
      INFO(from->str() << " to " << to->str());
      const Array local = local_part(*from, mesh.rank(), coded(DType::F64), DType::F64);
      const Array moved = redistribute(local, from, to);
      CHECK(redistribute(moved, to, made).to_vector() ==
            expected_part(*made, mesh.rank(), coded(DType::F64)));
    }
}

TEST_CASE("each change of placement costs what it must", "[mesh]") {
  const DeviceMesh mesh = all_meshes().front();
  const int ranks = mesh.size();
  Recorder& recorder = mesh.comm().recorder();
  const Dims sizes{60, 2};
  const auto records = [&](const Placement& p, const Placement& q) {
    const SpecPtr from = ShardSpec::make(mesh, {p}, sizes);
    const SpecPtr to = ShardSpec::make(mesh, {q}, sizes);
    const Array local = local_part(*from, mesh.rank(), coded(DType::F64), DType::F64);
    recorder.start();
    redistribute(local, from, to);
    recorder.stop();
    return recorder.records();
  };
  CHECK(records(Replicate(), Shard(0)).empty());
  CHECK(records(Replicate(), Partial()).empty());
  CHECK(records(Shard(0), Shard(0)).empty());
  if (ranks == 1) return;
  const auto scattered = records(Partial(), Shard(0));
  REQUIRE(scattered.size() == 1);
  CHECK(scattered[0].kind == "exchange");
  CHECK(scattered[0].bytes == (60 - 60 / ranks) * 2 * 8);
  const auto reduced = records(Partial(), Replicate());
  REQUIRE(reduced.size() == 1);
  CHECK(reduced[0].kind == "all_reduce");
  const auto gathered = records(Shard(0), Replicate());
  REQUIRE(gathered.size() == 1);
  CHECK(gathered[0].bytes == (ranks - 1) * 60 / ranks * 2 * 8);
  CHECK(records(Shard(0), Shard(1)).size() == 1);
}

TEST_CASE("sub-meshes move their own data side by side", "[mesh]") {
  auto random = test_random(37);
  for (const DeviceMesh& mesh : all_meshes()) {
    if (mesh.ndim() < 2) continue;
    for (const char* name : {"a0", "a1"}) {
      const DeviceMesh row = mesh[name];
      const int other = name[1] == '0' ? 1 : 0;
      const auto value = [&](std::int64_t i) {
        return static_cast<double>(i + 1000 * (mesh.coordinate(other) + 1));
      };
      for (int trial = 0; trial < trials(6); ++trial) {
        const Dims sizes = random_sizes(random, 2, 6);
        const SpecPtr from = random_spec(random, row, sizes, {.partial = true});
        const SpecPtr to = random_spec(random, row, sizes);
        const Array local = local_part(*from, row.rank(), value, DType::F64);
        CHECK(redistribute(local, from, to).to_vector() == expected_part(*to, row.rank(), value));
      }
    }
  }
}

TEST_CASE("redistribute refuses what does not fit, alike on every rank", "[mesh]") {
  const DeviceMesh mesh = all_meshes().front();
  const SpecPtr a = ShardSpec::make(mesh, {Shard(0)}, {4});
  const Array local = Array::zeros(a->local_sizes(), DType::F32);
  const std::string sizes = refusal([&] { redistribute(local, a, ShardSpec::make(mesh, {Shard(0)}, {5})); });
  CHECK(contains(sizes, "[4] and [5]"));
  CHECK(same_everywhere(sizes));
}
