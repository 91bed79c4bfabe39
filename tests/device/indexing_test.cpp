// Indexing, order and pooling on the device beside the CPU, in sizes that one block does not hold; wrong
// numbers; a host that does not wait.
#include <catch2/catch.hpp>

#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/staging.h"
#include "tests/support/world.h"

namespace ts = tessera;

namespace {

constexpr ts::DType kNumbers = ts::DType::I64;

ts::Tensor there(const ts::Tensor& t) { return ts::Tensor(t.local().to(ts::Device::Cuda)); }

ts::Tensor random_numbers(std::mt19937_64& random, const ts::Dims& sizes, std::int64_t n) {
  const ts::Array a = ts::Array::empty(sizes, kNumbers);
  for (std::int64_t i = 0; i < a.numel(); ++i) a.data<std::int64_t>()[i] = ts::random_int(random, 0, n - 1);
  return ts::Tensor(a);
}

ts::Tensor random_values(std::mt19937_64& random, const ts::Dims& sizes, ts::DType dtype) {
  ts::Generator generator(random());
  return ts::randn(sizes, generator, dtype);
}

// The same bits: terms are added in the same order.
void check_same(const ts::Tensor& device, const ts::Tensor& cpu) {
  REQUIRE(device.device() == ts::Device::Cuda);
  const auto a = device.to_vector();
  const auto b = cpu.to_vector();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && (a[i] == a[i] || b[i] == b[i]))
      FAIL("element " << i << ": " << a[i] << " and " << b[i]);
}

}  // namespace

TEST_CASE("sums by number have the CPU's bits at any size", "[device]") {
  auto random = ts::test_random(1);
  for (const ts::DType dtype : {ts::DType::F32, ts::DType::F64, ts::DType::BF16}) {
    const ts::Tensor table = random_values(random, {300, 5}, dtype);
    const ts::Tensor index = random_numbers(random, {5000}, 300);
    const ts::Tensor terms = random_values(random, {5000, 5}, dtype);
    const auto gradient = [&](const ts::Tensor& t, const ts::Tensor& i, const ts::Tensor& g) {
      ts::Tensor leaf = ts::Tensor(t.local()).set_requires_grad();
      const ts::Tensor y = ts::embedding(leaf, i, {.padding_idx = 7});
      y.backward(g);
      return std::pair(y.detach(), leaf.grad());
    };
    const auto device = gradient(there(table), there(index), there(terms));
    const auto cpu = gradient(table, index, terms);
    check_same(device.first, cpu.first);
    check_same(device.second, cpu.second);
    // A list of numbers for each of a few columns, and one for each of many.
    for (const ts::Dims& sizes : {ts::Dims{3000, 2}, ts::Dims{4, 600}}) {
      const ts::Tensor x = random_values(random, {50, sizes[1]}, dtype);
      const ts::Tensor numbers = random_numbers(random, sizes, 50);
      const ts::Tensor src = random_values(random, sizes, dtype);
      check_same(ts::scatter_add(there(x), 0, there(numbers), there(src)),
                 ts::scatter_add(x, 0, numbers, src));
      check_same(ts::gather(there(x), 0, there(numbers)), ts::gather(x, 0, numbers));
      const ts::Tensor from_end = numbers - 25.0;
      check_same(ts::take_along_dim(there(x), there(from_end), 0), ts::take_along_dim(x, from_end, 0));
    }
  }
}

TEST_CASE("long rows are put in order as on the CPU", "[device]") {
  auto random = ts::test_random(2);
  for (const ts::DType dtype : {ts::DType::F32, ts::DType::F64, ts::DType::BF16, ts::DType::I32, kNumbers}) {
    // Few values, so that many are equal, of both signs, and NaN.
    ts::Array values = ts::Array::empty({3, 5000}, ts::DType::F64);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const std::int64_t v = ts::random_int(random, -40, 40);
      const bool nan = v == 40 && ts::is_floating(dtype);
      values.data<double>()[i] = nan ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(v);
    }
    const ts::Tensor x(values.to(dtype));
    for (const bool descending : {false, true}) {
      const auto device = ts::sort(there(x), 1, descending);
      const auto cpu = ts::sort(x, 1, descending);
      check_same(device.second, cpu.second);
      check_same(ts::gather(there(x), 1, device.second), ts::gather(x, 1, cpu.second));
    }
    for (const int dim : {0, 1}) {
      const auto device = ts::median(there(x), dim);
      const auto cpu = ts::median(x, dim);
      check_same(device.first, cpu.first);
      check_same(device.second, cpu.second);
    }
    check_same(ts::topk(there(x), 17, {.dim = 1}).second, ts::topk(x, 17, {.dim = 1}).second);
  }
}

TEST_CASE("a wrong number is refused when the host next waits", "[device]") {
  const ts::Tensor table = there(ts::ones({5, 3}));
  for (const std::int64_t wrong : {std::int64_t{5}, std::int64_t{-1}}) {
    const ts::Tensor index = there(ts::Tensor(ts::Array::full({4}, static_cast<double>(wrong), kNumbers)));
    const ts::Tensor y = ts::embedding(table, index);
    CHECK_THROWS_WITH(y.to_vector(), Catch::Contains("embedding") &&
                                         Catch::Contains(fmt::format(
                                             "index {} is out of range for dim 0 of size 5", wrong)));
    // Once: the next values are right ones, the rows that were named wrongly zeros.
    CHECK(y.to_vector() == std::vector<double>(12, 0.0));
  }
}

TEST_CASE("numbers may count from the end, as far as there are rows", "[device]") {
  const ts::Tensor x = there(ts::ones({5, 3}));
  const auto taken = [&](double number) {
    return ts::take_along_dim(x, there(ts::Tensor(ts::Array::full({1, 3}, number, kNumbers))), 0);
  };
  CHECK(taken(-5).to_vector() == std::vector<double>(3, 1.0));
  const ts::Tensor y = taken(-6);
  CHECK_THROWS_WITH(y.to_vector(),
                    Catch::Contains("take_along_dim") && Catch::Contains("index -6 is out of range"));
}

TEST_CASE("checks of numbers take no memory without end, and the first wrong one is named", "[device]") {
  const ts::Tensor table = there(ts::ones({5, 3}));
  const auto numbers = [](double n) { return there(ts::Tensor(ts::Array::full({400}, n, kNumbers))); };
  const ts::Tensor good = numbers(2);
  const ts::Tensor wrong = numbers(7);
  const ts::Tensor later = numbers(8);
  const std::int64_t before = ts::cuda::staging_stats().buffers;
  ts::Tensor y;
  for (int i = 0; i < 600; ++i) y = ts::embedding(table, i == 100 ? wrong : i == 300 ? later : good);
  CHECK(ts::cuda::staging_stats().buffers - before <= 2 * ts::cuda::most_staging_buffers(16));
  CHECK_THROWS_WITH(y.to_vector(), Catch::Contains("index 7 is out of range"));
  CHECK(y.to_vector() == std::vector<double>(1200, 1.0));
}

TEST_CASE("a step with an embedding and pools does not wait for the device", "[device]") {
  auto random = ts::test_random(3);
  ts::Tensor table = there(random_values(random, {40, 16}, ts::DType::F32)).set_requires_grad();
  const ts::Tensor index = there(random_numbers(random, {2, 64}, 40));
  const auto step = [&] {
    table.zero_grad();
    const ts::Tensor maps = ts::reshape(ts::embedding(table, index), {2, 16, 8, 8});
    const ts::Tensor pooled = ts::max_pool2d(maps, {3}, {.stride = {2}, .padding = {1}});
    const ts::Tensor means = ts::avg_pool2d(pooled, {2});
    ts::sum(means * means).backward();
  };
  step();
  const std::int64_t before = ts::cuda::host_waits();
  step();
  CHECK(ts::cuda::host_waits() == before);
  CHECK(std::isfinite(ts::sum(table.grad()).item()));
}

TEST_CASE("overlapping pools give the CPU's gradients in every memory order", "[device]") {
  auto random = ts::test_random(4);
  for (const bool last : {false, true}) {
    const ts::Tensor x = random_values(random, {2, 3, 20, 31}, ts::DType::F32);
    const auto gradient = [&](const ts::Tensor& given) {
      ts::Tensor leaf = ts::Tensor(given.local()).set_requires_grad();
      const ts::Tensor in =
          last ? ts::permute(ts::contiguous(ts::permute(leaf, {0, 2, 3, 1})), {0, 3, 1, 2}) : leaf;
      const ts::Tensor y =
          ts::max_pool2d(in, {4, 3}, {.stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}});
      ts::sum(y * y).backward();
      return leaf.grad();
    };
    check_same(gradient(there(x)), gradient(x));
  }
}
