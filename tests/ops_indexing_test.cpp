// Indexing: where results live and what travels for them, refusals and who makes them, the order of sums,
// plans that know nothing of values.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "autograd/node.h"
#include "comm/virtual.h"
#include "mesh/mesh_state.h"
#include "ops/ops.h"
#include "runtime/process.h"
#include "runtime/threads.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

Tensor numbers(const std::vector<double>& values, const Dims& sizes = {}) {
  const Dims given = sizes.empty() ? Dims{static_cast<std::int64_t>(values.size())} : sizes;
  return Tensor(Array::from(values, given, DType::I64));
}

// `t` cut evenly along one dim (or as `lengths` say) of a mesh of one axis.
Tensor cut(const Tensor& t, const DeviceMesh& mesh, int dim, const std::vector<std::int64_t>& lengths = {}) {
  return t.redistribute(ShardSpec::from_lengths(mesh, {Shard(dim)}, t.sizes(), {lengths})).detach();
}

Tensor ramp(const Dims& sizes, DType dtype = DType::F64) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + 1;
  return Tensor(Array::from(values, sizes, dtype));
}

DeviceMesh line() { return {test_world(), {{"domain", test_world().size()}}}; }

// Bytes that this rank sends in f.
std::int64_t bytes_of(const std::function<void()>& f) {
  const std::int64_t before = test_world().recorder().totals().bytes;
  f();
  return test_world().recorder().totals().bytes - before;
}

}  // namespace

TEST_CASE("where rows of a cut dim end up", "[indexing]") {
  const DeviceMesh mesh = line();
  const int ranks = mesh.size();
  const Tensor x = cut(ramp({24, 5}), mesh, 0);
  SECTION("few rows for an index that is whole: nothing travels, the result is owed") {
    const Tensor index = numbers({3, 23, 3});
    Tensor y;
    CHECK(bytes_of([&] { y = index_select(x, 0, index); }) == 0);
    CHECK(y.spec()->placement(0) == Partial());
    CHECK(y.to_vector() == index_select(ramp({24, 5}), 0, index).to_vector());
  }
  SECTION("as many rows as x has: they are cut along the index") {
    std::vector<double> order(24);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>((i * 7 + 3) % 24);
    const Tensor y = index_select(x, 0, numbers(order));
    CHECK(y.spec()->placement(0) == (ranks == 1 ? Partial() : Shard(0)));
    CHECK(y.to_vector() == index_select(ramp({24, 5}), 0, numbers(order)).to_vector());
  }
  SECTION("an index that is cut keeps its cut") {
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
    lengths.back() = 4;
    const Tensor index = cut(numbers({3, 23, 3, 8}), mesh, 0, lengths);
    const Tensor y = index_select(x, 0, index);
    CHECK((ranks == 1 || y.spec()->cut(0) == index.spec()->cut(0) ||
           *y.spec()->cut(0) == *index.spec()->cut(0)));
    CHECK(y.to_vector() == index_select(ramp({24, 5}), 0, index.full_tensor()).to_vector());
  }
  SECTION("for many numbers of few rows the rows travel to everybody, once") {
    if (ranks == 1) return;
    const Tensor table = cut(ramp({4, 2}), mesh, 0);
    std::vector<double> many(60);
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i * i % 4);
    const Tensor index = cut(numbers(many), mesh, 0);
    Tensor y;
    const std::int64_t sent = bytes_of([&] { y = embedding(table, index); });
    CHECK(sent == (ranks - 1) * table.local().nbytes());
    CHECK(y.to_vector() == embedding(ramp({4, 2}), numbers(many)).to_vector());
  }
}

TEST_CASE("where gradients of rows end up", "[indexing]") {
  const DeviceMesh mesh = line();
  const int ranks = mesh.size();
  SECTION("of a whole table by a cut index: owed until it is read, without a message") {
    Tensor table = ramp({6, 3});
    table.set_requires_grad();
    const Tensor index = cut(numbers({0, 5, 5, 2, 1, 5, 0, 4}), mesh, 0);
    CHECK(bytes_of([&] { sum(embedding(table, index), {0, 1}).backward(ones({}, DType::F64)); }) == 0);
    CHECK(pending_grad(table).spec()->placement(0) == Partial());
    CHECK(table.grad().to_vector() ==
          std::vector<double>{2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 3, 3, 3});
  }
  SECTION("of a cut table: cut like it") {
    Tensor table = cut(ramp({6, 3}), mesh, 0);
    table.set_requires_grad();
    for (const Tensor& index : {numbers({0, 5, 5, 2}), cut(numbers({0, 5, 5, 2}), mesh, 0)}) {
      table.zero_grad();
      sum(square(embedding(table, index))).backward();
      CHECK((ranks == 1 || same_layout(*pending_grad(table).spec(), *table.spec())));
      CHECK(table.grad().to_vector() ==
            std::vector<double>{2, 4, 6, 0, 0, 0, 14, 16, 18, 0, 0, 0, 0, 0, 0, 64, 68, 72});
    }
  }
}

TEST_CASE("the row of padding_idx is taken and has no gradient", "[indexing]") {
  Tensor table = ramp({3, 2});
  table.set_requires_grad();
  const Tensor y = embedding(table, numbers({2, 0, 2}), {.padding_idx = -1});
  CHECK(y.to_vector() == std::vector<double>{5, 6, 1, 2, 5, 6});
  sum(y).backward();
  CHECK(table.grad().to_vector() == std::vector<double>{1, 1, 0, 0, 0, 0});
}

TEST_CASE("bfloat16 gradients of a repeated row are summed in float32", "[indexing]") {
  const DeviceMesh mesh = line();
  Tensor table(Array::zeros({3, 2}, DType::BF16));
  table.set_requires_grad();
  const Tensor index = cut(numbers(std::vector<double>(1000, 1.0)), mesh, 0);
  sum(to(embedding(table, index), DType::F32)).backward();
  CHECK(table.grad().to_vector() == std::vector<double>{0, 0, 1000, 1000, 0, 0});
}

TEST_CASE("rows of other types, infinities and NaN", "[indexing]") {
  const DeviceMesh mesh = line();
  const Tensor few(Array::from(std::vector<double>{2, 0}, {2}, DType::I32));
  for (DType t : {DType::F32, DType::BF16, DType::F16, DType::I64, DType::I32, DType::Bool}) {
    const Tensor y = index_select(cut(to(ramp({9, 2}), t), mesh, 0), 0, few);
    CHECK(y.dtype() == t);
    CHECK(y.to_vector() ==
          to(Tensor(Array::from(std::vector<double>{5, 6, 1, 2}, {2, 2}, DType::F64)), t).to_vector());
  }
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = cut(tensor(std::vector<double>{inf, std::nan(""), 3, -inf}, {4}, DType::F64), mesh, 0);
  const std::vector<double> y = index_select(x, 0, numbers({3, 1})).to_vector();
  CHECK(y[0] == -inf);
  CHECK(std::isnan(y[1]));
  const Tensor counts =
      scatter_add(Tensor(Array::zeros({3}, DType::I64)), 0, numbers({2, 2, 0}), numbers({5, 6, 7}));
  CHECK(counts.to_vector() == std::vector<double>{7, 0, 11});
}

TEST_CASE("an index that is owed is summed before it is used", "[indexing]") {
  const DeviceMesh mesh = line();
  const Tensor ones_each(Array::full({3}, 1, DType::I64), ShardSpec::make(mesh, {Partial()}, {3}));
  const Tensor y = index_select(cut(ramp({24}), mesh, 0), 0, ones_each);
  CHECK(y.to_vector() == std::vector<double>(3, mesh.size() + 1.0));
}

TEST_CASE("sums have the same bits in every run, on any number of threads", "[indexing]") {
  const DeviceMesh mesh = line();
  auto random = test_random(90);
  std::vector<double> where(20000);
  std::vector<double> what(2 * where.size());
  for (double& v : where) v = static_cast<double>(random_int(random, 0, 99));
  for (double& v : what) v = static_cast<double>(random_int(random, -1'000'000, 1'000'000)) / 7777.0;
  const Tensor src(Array::from(what, {20000, 2}, DType::F32));
  const Tensor index = numbers(where);
  const int threads = thread_count();
  for (const bool is_cut : {false, true}) {
    std::vector<std::vector<double>> sums;
    for (const int n : {1, 4, 1, 3}) {
      set_thread_count(n);
      Tensor table = cut(Tensor(Array::zeros({100, 2}, DType::F32)), mesh, 0);
      table.set_requires_grad();
      const Tensor y = embedding(table, is_cut ? cut(index, mesh, 0) : index);
      y.backward(src);
      sums.push_back(table.grad().to_vector());
    }
    set_thread_count(threads);
    CHECK((sums[0] == sums[1] && sums[0] == sums[2] && sums[0] == sums[3]));
  }
}

TEST_CASE("what indexing refuses", "[indexing]") {
  const Tensor x = ramp({3, 4});
  const Tensor table = ramp({4, 3});
  const auto refused = [](const std::function<void()>& f, const char* part) {
    const std::string text = refusal(f);
    INFO(text);
    CHECK(contains(text, part));
    CHECK(same_everywhere(text));
  };
  refused([&] { index_select(x, 0, numbers({0, -1})); }, "index -1 is out of range for dim 0 of size 3");
  refused([&] { index_select(x, 1, numbers({4, 9})); }, "index 4 is out of range for dim 1 of size 4");
  refused([&] { index_select(x, 0, numbers({0, 0}, {1, 2})); }, "one dim or none, given [1, 2]");
  refused([&] { index_select(x, 0, x); }, "i64 or i32, given f64");
  refused([&] { index_select(x, 2, numbers({0})); }, "dim 2");
  refused([&] { index_select(full({}, 1), 0, numbers({0, 0})); }, "one row");
  refused(
      [&] {
        index_select(ramp({0, 2}), 0, numbers({0}));
      },
      "index 0 is out of range for dim 0 of size 0");
  refused([&] { gather(x, 0, numbers({3}, {1, 1})); }, "index 3 is out of range for dim 0 of size 3");
  refused([&] { gather(x, 0, numbers({-3}, {1, 1})); }, "index -3 is out of range");
  refused([&] { gather(x, 0, numbers({0, 0, 0, 0, 0}, {1, 5})); }, "no larger, apart from dim 0");
  refused([&] { gather(x, 0, numbers({0})); }, "as many dims");
  refused([&] { scatter_add(x, 0, numbers({7}, {1, 1}), x); }, "index 7 is out of range for dim 0 of size 3");
  refused([&] { scatter_add(x, 0, numbers({0, 0, 0}, {1, 3}), ramp({1, 2})); }, "no larger");
  refused([&] { scatter_add(x, 0, numbers({0}, {1, 1}), to(x, DType::F32)); }, "x is f64, src f32");
  refused([&] { embedding(table, numbers({4})); }, "index 4 is out of range for dim 0 of size 4");
  const Tensor long_rows = full({4, 3}, 9.0);
  refused(
      [&] {
        embedding(long_rows, numbers({1, 4}), {.max_norm = 1.0});
      },
      "index 4 is out of range for dim 0 of size 4");
  refused(
      [&] {
        embedding(long_rows, numbers({-1, 1}), {.max_norm = 1.0});
      },
      "index -1 is out of range for dim 0 of size 4");
  CHECK(long_rows.to_vector() == std::vector<double>(12, 9.0));  // what is refused changes nothing
  refused([&] { embedding(ramp({4}), numbers({0})); }, "two dims, given [4]");
  refused([&] { embedding(table, numbers({0}), {.padding_idx = 4}); },
          "padding_idx 4 is out of range for a table of 4 rows");
  refused([&] { embedding(table, numbers({0}), {.padding_idx = -5}); }, "padding_idx -5");
  refused([&] { embedding(table, to(numbers({0}), DType::Bool)); }, "given bool");
  refused([&] { take_along_dim(x, numbers({0}), 1); }, "x has 2 dims, the index 1");
  refused([&] { take_along_dim(x, numbers({-4, 0, 0, 0}, {1, 4}), 0); }, "index -4 is out of range");
  refused([&] { one_hot(numbers({0, 2}), 2); }, "index 2 is out of range for dim 1 of size 2");
  refused([&] { one_hot(numbers({-1})); }, "index -1");
  refused([&] { one_hot(Tensor(Array::empty({0}, DType::I64))); }, "empty index");
  refused([&] { masked_fill(x, x, 1.0); }, "the mask must be bool, given f64");
  refused([&] { index_select(Tensor(), 0, numbers({0})); }, "undefined");
}

TEST_CASE("a wrong number that one rank sees is refused by all where rows travel", "[indexing]") {
  const DeviceMesh mesh = line();
  const int ranks = mesh.size();
  std::vector<double> values(static_cast<std::size_t>(2 * ranks), 1.0);
  values.back() = 77;  // the last rank's
  const Tensor index = cut(numbers(values), mesh, 0);
  const Tensor x = cut(ramp({64, 3}), mesh, 0);
  const char* text = "index 77 is out of range for dim 0 of size 64";
  CHECK(contains(refusal([&] { index_select(x, 0, index); }), text));
  const Tensor ones_each = cut(ones({2 * ranks}, DType::F64), mesh, 0);
  CHECK(contains(refusal([&] { scatter_add(cut(ramp({64}), mesh, 0), 0, index, ones_each); }), text));
  // Without a message that rank is alone, but for the mode that checks calls.
  const std::string alone = refusal([&] { index_select(ramp({64, 3}), 0, index); });
  CHECK(contains(alone, mesh.rank() == ranks - 1 ? text : ""));
  CHECK(alone.empty() == (mesh.rank() != ranks - 1));
  test_world().set_check_calls(true);
  const std::string all = refusal([&] { index_select(ramp({64, 3}), 0, index); });
  test_world().set_check_calls(false);
  CHECK(contains(all, text));
  CHECK(same_everywhere(all));
  CHECK(index_select(x, 0, numbers({63, 0})).to_vector() == std::vector<double>{190, 191, 192, 1, 2, 3});
}

// What a peer was measured to do with 16 rows cut 10 + 6: abort or hang in gather, index_select, sort and
// topk of the cut dim, and fail in backward where the cuts were even.
TEST_CASE("reported: cuts that are not even, along the dim that is indexed or sorted", "[indexing]") {
  const DeviceMesh mesh = line();
  Generator random(test_seed());
  const Tensor whole = randn({16, 3}, random, DType::F64);
  const Tensor index = numbers({15, 0, 9, 10, 15, 3});
  const Tensor each = expand(unsqueeze(index, 1), {6, 3});
  const auto calls = [&](const Tensor& x) {
    return Tensors{index_select(x, 0, index), gather(x, 0, each), scatter_add(x, 0, each, slice(x, 0, 0, 6)),
                   sort(x, 0).first, topk(x, 4, {.dim = 0}).first};
  };
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(mesh.size()), 6 / std::max(1, mesh.size() - 1));
  lengths.front() = 16;
  for (std::size_t i = 1; i < lengths.size(); ++i) lengths.front() -= lengths[i];
  for (const auto& cuts : {std::vector<std::int64_t>{}, lengths}) {
    Tensor x = cut(whole, mesh, 0, cuts).set_requires_grad();
    Tensor plain = whole.detach().set_requires_grad();
    const Tensors got = calls(x);
    const Tensors want = calls(plain);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].to_vector() == want[i].to_vector());
      x.zero_grad();
      plain.zero_grad();
      sum(square(got[i])).backward(Tensor(), {.retain_graph = true});
      sum(square(want[i])).backward(Tensor(), {.retain_graph = true});
      const std::vector<double> a = x.grad().to_vector();
      const std::vector<double> b = plain.grad().to_vector();
      for (std::size_t k = 0; k < a.size(); ++k) CHECK(a[k] == Approx(b[k]).margin(1e-12));
    }
  }
}

TEST_CASE("an index changed before backward is noticed", "[indexing]") {
  const Tensor x = ramp({4}).set_requires_grad();
  const Tensor index = numbers({1, 2});
  const Tensor y = sum(gather(x, 0, index));
  index.local().fill_(0.0);
  CHECK(contains(refusal([&] { y.backward(); }), "changed in place"));
}

TEST_CASE("other numbers are the same plan: caches and memory stay flat", "[indexing]") {
  const DeviceMesh mesh = line();
  Tensor table = ramp({16, 2}).set_requires_grad();
  Tensor rows = cut(ramp({16, 2}), mesh, 0).set_requires_grad();
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {8});
  std::int64_t step = 0;
  const auto run = [&](const Tensor& from) {
    const Array part = Array::empty(spec->local_sizes(), DType::I64);
    for (std::int64_t i = 0; i < part.numel(); ++i) part.data<std::int64_t>()[i] = (step * 7 + i * i) % 16;
    ++step;
    embedding(from, Tensor(part, spec)).backward(ones({8, 2}, DType::F64));
    leaf_state(from).grad = Tensor();
  };
  const auto flat = [&](const Tensor& from, int steps) {
    for (int i = 0; i < 1000; ++i) run(from);
    const std::int64_t planned = mesh.cache()->planned;
    const std::int64_t resident = resident_bytes();
    for (int i = 0; i < steps; ++i) run(from);
    CHECK(mesh.cache()->planned == planned);
    CHECK(resident_bytes() - resident < 1 << 20);
  };
  flat(table, 100'000);
  flat(rows, 10'000);
}

TEST_CASE("indexing on the meta device: nothing computed, all counted", "[indexing]") {
  const Communicator planned = recording_communicator(3, 16);
  const DeviceMesh mesh(planned, {{"domain", 16}});
  const auto meta = [&](const Dims& sizes, DType type) {
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, sizes);
    return Tensor(Array::empty(spec->local_sizes(), type, Device::Meta), spec);
  };
  const Tensor table = meta({1024, 8}, DType::F32);
  const Tensor index = meta({512}, DType::I64);
  planned.recorder().start();
  const Tensor y = embedding(table, index);
  planned.recorder().stop();
  CHECK(y.sizes() == Dims{512, 8});
  // Counts, then 2 of 32 rows from each of the others: asked for and given.
  CHECK(planned.recorder().bytes("exchange") == 15 * 16 + 15 * 2 * 4 + 15 * 2 * 8 * 4);
}
