// sort and topk: PyTorch's order in the corners, where results live and what travels for it, sample sorts of
// every kind of data.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <numeric>

#include "comm/virtual.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;

DeviceMesh line(const Communicator& comm = test_world()) { return {comm, {{"domain", comm.size()}}}; }

Tensor vector(const Values& values, DType dtype = DType::F64) {
  return Tensor(Array::from(values, {static_cast<std::int64_t>(values.size())}, dtype));
}

std::int64_t bytes_of(const std::function<void()>& f) {
  const std::int64_t before = test_world().recorder().totals().bytes;
  f();
  return test_world().recorder().totals().bytes - before;
}

// What one device is to find: positions in order, NaN greatest, the lowest position first among equals.
std::vector<std::size_t> stable_order(const Values& v, bool descending) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool less = std::isnan(v[b]) ? !std::isnan(v[a]) : v[a] < v[b];
    const bool more = std::isnan(v[a]) ? !std::isnan(v[b]) : v[b] < v[a];
    return descending ? more : less;
  });
  return order;
}

// Whether `found` are the values and numbers of the first items in that order.
bool is_ordered(const std::pair<Tensor, Tensor>& found, const Values& v, bool descending) {
  const std::vector<std::size_t> order = stable_order(v, descending);
  const Values values = found.first.to_vector();
  const Values numbers = found.second.to_vector();
  bool right = values.size() == numbers.size() && values.size() <= v.size();
  for (std::size_t i = 0; right && i < values.size(); ++i) {
    const double want = v[order[i]];
    right = numbers[i] == static_cast<double>(order[i]) &&
            (std::isnan(want) ? std::isnan(values[i])
                              : values[i] == want && std::signbit(values[i]) == std::signbit(want));
  }
  return right;
}

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("NaN, infinities, zeros of both signs and ties in order", "[order]") {
  const DeviceMesh mesh = line();
  auto random = test_random(95);
  const Values v{kNan, 1, -kNan, 0.0, -0.0, kInf, -kInf, 2, 2, -3, 0.0, kNan, 1, -0.0, kInf};
  for (const DType type : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (int trial = 0; trial < trials(6); ++trial) {
      const Tensor whole = vector(v, type);
      const Tensor x = trial == 0 ? whole : whole.redistribute(random_spec(random, mesh, whole.sizes()));
      INFO((x.is_sharded() ? x.spec()->str() : "plain") << " " << name_of(type));
      for (const bool descending : {false, true}) {
        CHECK(is_ordered(sort(x, 0, descending), v, descending));
        CHECK(argsort(x, 0, descending).to_vector() == sort(whole, 0, descending).second.to_vector());
        for (const std::int64_t k : {0, 1, 4, 15})
          CHECK(is_ordered(topk(x, k, {.dim = 0, .largest = descending}), v, descending));
      }
    }
}

TEST_CASE("integers and bools in order", "[order]") {
  const DeviceMesh mesh = line();
  const double large = 9007199254740992.0;
  for (const auto& [type, v] :
       std::vector<std::pair<DType, Values>>{{DType::I64, {3, -large, 0, large, -1, 3, -2}},
                                             {DType::I32, {-2147483648.0, 2147483647.0, 0, -1, 5, 5}},
                                             {DType::Bool, {1, 0, 0, 1, 1}}}) {
    const Tensor whole = vector(v, type);
    const Tensor x = whole.redistribute(ShardSpec::make(mesh, {Shard(0)}, whole.sizes()));
    for (const bool descending : {false, true}) {
      CHECK(is_ordered(sort(whole, 0, descending), v, descending));
      CHECK(is_ordered(sort(x, 0, descending), v, descending));
      CHECK(is_ordered(topk(x, 2, {.largest = descending}), v, descending));
      CHECK(sort(x).first.dtype() == type);
    }
  }
}

TEST_CASE("medians: the lower of two middles, ties and NaN by their first place", "[order]") {
  const DeviceMesh mesh = line();
  auto random = test_random(97);
  // Columns: ties on the left of the middle, two zeros, NaN twice, one NaN at the end, infinities.
  const Values columns[] = {
      {2, 1, 2, 1}, {0.0, -0.0, -1, 1}, {3, kNan, 1, -kNan}, {5, 4, 3, kNan}, {-kInf, kInf, kInf, 0}};
  const Values middles{1, -0.0, kNan, kNan, 0};
  const Values places{3, 0, 1, 3, 3};
  Values rows;
  for (const Values& c : columns) rows.insert(rows.end(), c.begin(), c.end());
  for (const DType type : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const int dim : {0, 1})
      for (int trial = 0; trial < trials(6); ++trial) {
        Tensor whole(Array::from(rows, {5, 4}, type));
        if (dim == 0) whole = permute(whole, {1, 0});
        const Tensor x = trial == 0 ? whole : whole.redistribute(random_spec(random, mesh, whole.sizes()));
        INFO((x.is_sharded() ? x.spec()->str() : "plain") << " " << name_of(type) << " dim " << dim);
        const auto [values, numbers] = median(x, dim);
        CHECK(numbers.to_vector() == places);
        CHECK(values.dtype() == type);
        const Values found = values.to_vector();
        for (std::size_t i = 0; i < found.size(); ++i)
          CHECK((std::isnan(middles[i]) ? std::isnan(found[i]) : found[i] == middles[i]));
        CHECK(median(x, dim, true).second.sizes() == (dim == 0 ? Dims{1, 5} : Dims{5, 1}));
      }
  const auto [integer, place] = median(Tensor(Array::from(Values{7, -9, 7, 3}, {4}, DType::I64)), 0);
  CHECK((integer.item() == 3 && place.item() == 3));
  CHECK(median(Tensor(Array::empty({0, 3}, DType::F32)), 1).first.sizes() == Dims{0});
}

TEST_CASE("tensors of no dims and of no elements", "[order]") {
  Tensor x = full({}, 2.5, DType::F64).set_requires_grad();
  for (const auto& [values, numbers] : {sort(x), topk(x, 1), topk(x, 0)}) {
    CHECK(values.to_vector() == Values{2.5});
    CHECK(numbers.to_vector() == Values{0});
    CHECK(numbers.dtype() == DType::I64);
    CHECK(values.sizes() == Dims{});
  }
  const DeviceMesh mesh = line();
  const Tensor none(Array::zeros({2, 0}, DType::F32));
  const Tensor cut = none.redistribute(ShardSpec::make(mesh, {Shard(1)}, {2, 0}));
  CHECK(sort(none, 1).second.sizes() == Dims{2, 0});
  CHECK(sort(cut, 1).first.full_tensor().sizes() == Dims{2, 0});
  CHECK(sort(cut, 0).first.full_tensor().sizes() == Dims{2, 0});
  CHECK(topk(cut, 0).first.full_tensor().sizes() == Dims{2, 0});
  CHECK(topk(none, 2, {.dim = 0}).first.sizes() == Dims{2, 0});
}

TEST_CASE("what sort and topk refuse", "[order]") {
  const Tensor x = ones({2, 3});
  const auto refused = [](const std::function<void()>& f, const char* part) {
    CHECK(contains(refusal(f), part));
  };
  refused([&] { topk(x, 4); }, "k is 4; dim 1 of [2, 3] allows 0 to 3");
  refused([&] { topk(x, -1); }, "k is -1");
  refused([&] { topk(full({}, 1), 2); }, "allows 0 to 1");
  refused([&] { sort(x, 2); }, "dim 2");
  refused([&] { sort(full({}, 1), 1); }, "dim 1");
  refused([&] { sort(Tensor()); }, "undefined");
  refused([&] { topk(Tensor(), 1); }, "undefined");
}

TEST_CASE("where the results of sort live, and what travels", "[order]") {
  const DeviceMesh mesh = line();
  const std::int64_t ranks = mesh.size();
  auto random = test_random(96);
  Generator numbers(test_seed());
  SECTION("a vector: cut exactly as it was, intervals out of order and all") {
    for (int trial = 0; trial < trials(6); ++trial) {
      const Dims sizes{random_int(random, 0, 200)};
      const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, sizes,
                                           {random_cut(random, {0}, sizes[0], static_cast<int>(ranks))});
      const Tensor x = randn(sizes, numbers, DType::F64, spec);
      const auto [values, order] = sort(x, 0);
      CHECK(values.spec() == spec);
      CHECK(order.spec() == spec);
      CHECK(is_ordered({values, order}, x.to_vector(), false));
    }
  }
  SECTION("long vectors: every item moves about once, with its number") {
    const std::int64_t n = 12000;
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {n});
    const Tensor random_ones = randn({n}, numbers, DType::F32, spec);
    const Tensor equal = full_like(random_ones, 1.0);
    for (const Tensor& x : {random_ones, equal, sort(random_ones, 0, true).first}) {
      std::pair<Tensor, Tensor> found;
      const std::int64_t sent = bytes_of([&] { found = sort(x, 0); });
      const std::int64_t own = x.local().numel() * 8;
      CHECK(sent <= own + own / 4 + 16 * ranks * 8 + 8 * ranks);
      CHECK(is_ordered(found, x.to_vector(), false));
    }
    const Tensor sorted = sort(random_ones, 0).first.detach();
    CHECK(bytes_of([&] { sort(sorted, 0); }) <= 16 * 8 * ranks + 8 * ranks + sorted.local().numel());
  }
  SECTION("many rows: the cut moves to them, in one exchange") {
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(1)}, {3, 40, 8});
    const Tensor x = randn({3, 40, 8}, numbers, DType::F32, spec);
    Tensor y;
    const std::int64_t sent = bytes_of([&] { y = sort(x, 1).first; });
    CHECK(y.spec()->placement(0) == Shard(2));
    CHECK(sent <= x.local().nbytes());
    CHECK(y.to_vector() == sort(x.full_tensor(), 1).first.to_vector());
  }
}

TEST_CASE("where the results of topk live, and what travels", "[order]") {
  const DeviceMesh mesh = line();
  const std::int64_t ranks = mesh.size();
  Generator numbers(test_seed());
  const Tensor x = randn({2, 600}, numbers, DType::F32, ShardSpec::make(mesh, {Shard(1)}, {2, 600}));
  std::pair<Tensor, Tensor> found;
  SECTION("few of many: candidates go to all") {
    CHECK(bytes_of([&] { found = topk(x, 5); }) == (ranks == 1 ? 0 : 2 * 5 * 8));
    CHECK(found.first.spec()->is_replicated());
  }
  SECTION("nearly all of a vector: a sort") {
    const Tensor v = reshape(slice(x, 0, 0, 1), {600});
    found = topk(v, 550);
    CHECK(found.first.spec()->placement(0) == (ranks == 1 ? Replicate() : Shard(0)));
    CHECK(is_ordered(found, v.to_vector(), true));
    return;
  }
  SECTION("a good part of many rows: the cut moves") {
    const Tensor rows = randn({20, 40}, numbers, DType::F32, ShardSpec::make(mesh, {Shard(1)}, {20, 40}));
    found = topk(rows, 10);
    CHECK(found.first.spec()->placement(0) == (ranks == 1 ? Replicate() : Shard(0)));
    CHECK(found.second.to_vector() == topk(rows.full_tensor(), 10).second.to_vector());
    return;
  }
  CHECK(found.second.to_vector() == topk(x.full_tensor(), 5).second.to_vector());
}

TEST_CASE("sample sorts over seven ranks: skewed data, empty ranks, a few rows", "[order]") {
  if (test_world().size() > 1) return;
  auto random = test_random(97);
  for (int trial = 0; trial < trials(12); ++trial) {
    const Dims sizes{random_int(random, 1, 3), random_int(random, 1, 3000)};
    Values v(static_cast<std::size_t>(numel_of(sizes)));
    const std::int64_t kind = random_int(random, 0, 3);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const double u = static_cast<double>(random_int(random, 0, 1'000'000)) / 1e6;
      v[i] = kind == 0   ? u
             : kind == 1 ? std::floor(3 * u)
             : kind == 2 ? std::pow(u, 40)
                         : static_cast<double>(i);
    }
    const DimCut cut = random_cut(random, {0}, sizes[1], 7);
    const bool descending = chance(random, 50);
    const Tensor whole(Array::from(v, sizes, DType::F64));
    const auto want = sort(whole, 1, descending);
    std::array<bool, 7> right{};
    run_virtual_ranks(7, [&](const Communicator& comm) {
      const DeviceMesh mesh = line(comm);
      const SpecPtr spec = ShardSpec::make(mesh, {Shard(1)}, sizes, {std::nullopt, cut});
      const Tensor x(
          local_part(
              *spec, comm.rank(), [&](std::int64_t i) { return v[static_cast<std::size_t>(i)]; }, DType::F64),
          spec);
      const auto found = sort(x, 1, descending);
      right[static_cast<std::size_t>(comm.rank())] = found.first.spec() == spec &&
                                                     found.first.to_vector() == want.first.to_vector() &&
                                                     found.second.to_vector() == want.second.to_vector();
    });
    INFO("trial " << trial << " kind " << kind << " " << sizes.str());
    CHECK(right == std::array<bool, 7>{true, true, true, true, true, true, true});
  }
}

TEST_CASE("long rows on one device", "[order]") {  // long enough for the radix sort
  auto random = test_random(98);
  for (const DType type : {DType::F32, DType::F64, DType::I32, DType::BF16, DType::F16}) {
    Values v(5000);
    for (double& x : v) x = static_cast<double>(random_int(random, -300, 300));
    CHECK(is_ordered(sort(vector(v, type), 0), vector(v, type).to_vector(), false));
    CHECK(is_ordered(sort(vector(v, type), 0, true), vector(v, type).to_vector(), true));
  }
}

TEST_CASE("sorting on the meta device goes through", "[order]") {
  const Communicator planned = recording_communicator(3, 16);
  const DeviceMesh mesh = line(planned);
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {4096});
  const Tensor x(Array::empty(spec->local_sizes(), DType::F32, Device::Meta), spec);
  CHECK(sort(x).second.spec() == spec);
  CHECK(topk(x, 3).first.sizes() == Dims{3});
}
