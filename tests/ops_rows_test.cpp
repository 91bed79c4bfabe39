// Rows that travel by number: the bytes that they cost, counted from cuts and numbers alone.
#include <catch2/catch.hpp>

#include <set>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

Tensor numbers(const std::vector<double>& values) {
  return Tensor(Array::from(values, {static_cast<std::int64_t>(values.size())}, DType::I64));
}

Tensor cut(const Tensor& t, const DeviceMesh& mesh) {
  return t.redistribute(ShardSpec::make(mesh, {Shard(0)}, t.sizes())).detach();
}

Tensor ramp(const Dims& sizes) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) + 1;
  return Tensor(Array::from(values, sizes, DType::F64));
}

// Of all ranks.
std::int64_t all_bytes_of(const std::function<void()>& f) {
  std::int64_t all = 0;
  const std::int64_t before = test_world().recorder().totals().bytes;
  f();
  const std::int64_t mine = test_world().recorder().totals().bytes - before;
  for (const std::string& one : test_world().all_gather_bytes(std::to_string(mine))) all += std::stoll(one);
  return all;
}

// What rows cost that travel by number, by counting: every pair of ranks tells counts, and each distinct row
// is asked for and sent once, or all that a rank holds without numbers.
std::int64_t bytes_by_number(const ShardSpec& rows, const ShardSpec& index,
                             const std::vector<double>& numbers, std::int64_t row_bytes) {
  const int ranks = test_world().size();
  std::int64_t bytes = 0;
  for (int asks = 0; asks < ranks; ++asks)
    for (int owns = 0; owns < ranks; ++owns) {
      if (asks == owns) continue;
      std::set<double> distinct;
      const Interval held = rows.intervals(0, owns).empty() ? Interval() : rows.intervals(0, owns).front();
      for (const Interval mine : index.intervals(0, asks))
        for (std::int64_t i = mine.lo; i < mine.hi; ++i)
          if (const double n = numbers[static_cast<std::size_t>(i)];
              n >= static_cast<double>(held.lo) && n < static_cast<double>(held.hi))
            distinct.insert(n);
      const std::int64_t asked = static_cast<std::int64_t>(distinct.size());
      bytes += 16 + std::min(asked * (4 + row_bytes), asked == 0 ? 0 : held.length() * row_bytes);
    }
  return bytes;
}

}  // namespace

TEST_CASE("however many numbers there are, a row travels once to a rank, and never more than the table",
          "[indexing]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  const int ranks = mesh.size();
  if (ranks == 1) return;
  auto random = test_random(91);
  for (int trial = 0; trial < 12; ++trial) {
    const std::int64_t n = random_int(random, 20, 60);
    const std::int64_t width = random_int(random, 1, 5);
    const std::int64_t named = random_int(random, 1, n);  // rows that occur
    std::vector<double> values(static_cast<std::size_t>(n * random_int(random, 2, 6)));
    for (double& v : values) v = static_cast<double>((random_int(random, 1, named) * 7) % n);
    const Tensor whole = ramp({n, width}).set_requires_grad();
    const Tensor index = cut(numbers(values), mesh);
    INFO(n << " rows of " << width << ", " << values.size() << " numbers of " << named);
    const std::int64_t counts = 16 * ranks * (ranks - 1);
    const auto check = [&](const Tensor& of_whole, const Tensor& x, std::int64_t most, const auto& taken) {
      Tensor y;
      const std::int64_t sent = all_bytes_of([&] { y = taken(x); });
      CHECK(sent <= counts + most);
      const Tensor want = taken(of_whole);
      CHECK(y.to_vector() == want.to_vector());
      const Tensor cotangent(Array::full(y.spec()->local_sizes(), 1.0, DType::F64),
                             without_partial(*y.spec()));
      CHECK(all_bytes_of([&] { y.backward(cotangent); }) == sent);
      want.backward(ones(want.sizes(), DType::F64));
      CHECK(x.grad().to_vector() == of_whole.grad().to_vector());
      of_whole.zero_grad();
      return sent;
    };
    const std::int64_t table = (ranks - 1) * n * width * 8;
    const Tensor x = cut(whole.detach(), mesh).set_requires_grad();
    const std::int64_t sent = check(whole, x, table, [&](const Tensor& t) {
      return index_select(t, 0, t.is_sharded() ? index : index.full_tensor());
    });
    CHECK(sent == bytes_by_number(*x.spec(), *index.spec(), values, width * 8));
    const Tensor each = cut(expand(unsqueeze(index.full_tensor(), 1), {index.size(0), width}), mesh);
    const Tensor z = cut(whole.detach(), mesh).set_requires_grad();
    check(whole, z, table,
          [&](const Tensor& t) { return gather(t, 0, t.is_sharded() ? each : each.full_tensor()); });
  }
}
