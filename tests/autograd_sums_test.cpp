// Where gradients are summed: in place where nobody else sees the memory, within a pass and over several, and
// never in memory that somebody does.
#include <catch2/catch.hpp>

#include "runtime/allocator.h"
#include "tests/autograd_cases.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::autograd_cases;
using namespace tessera::mesh_cases;

// Recorded passes sum out of place: the twin of sums in place.
TEST_CASE("gradients are summed in memory that nobody else sees", "[autograd]") {
  constexpr std::int64_t kSize = 50000;
  Generator generator(3);
  const Tensor x = randn({kSize}, generator, DType::F64).set_requires_grad();
  const auto residual = [&x] {
    Tensor y = x * 1.5;
    for (int i = 0; i < 4; ++i) y = y + sin(y);
    return sum(y * y);
  };
  const Tensor in_place = grad({residual()}, {x})[0];
  const Tensor recorded = grad({residual()}, {x}, {}, create())[0];
  CHECK(in_place.to_vector() == recorded.to_vector());
  // The skipped gradient and the branch's become one array: at most four of them live beside what is saved.
  const Tensor loss = residual();
  const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
  reset_peak(Device::Cpu);
  const Tensor g = grad({loss}, {x}, {}, retain())[0];
  CHECK(allocator_stats(Device::Cpu).peak_live_bytes - before <= 4 * kSize * 8 + 1000);
}

TEST_CASE("gradients in the memory of others are not added to in place", "[autograd]") {
  const Tensor x = leaf({1, 2});
  Values memory{5, 6};
  // An operation whose gradient lies in its author's memory.
  const auto doubled = [&memory](const Tensor& t) {
    Tensor out(t.local().clone());
    record_simple("doubled", std::span(&t, 1), std::span(&out, 1), [&memory](const auto&, const Tensors&) {
      return Tensors{Tensor(Array::wrap(memory.data(), {2}, {1}, DType::F64))};
    });
    return out;
  };
  const Tensor y = x * 1.0;
  sum(doubled(y) + y * y).backward();
  CHECK(memory == Values{5, 6});
  CHECK(x.grad().to_vector() == Values{7, 10});
  // A hook that keeps what it saw.
  Tensor seen;
  const Tensor z = x * 1.0;
  const Tensor branch = z * 3.0;
  branch.register_hook([&seen](const Tensor& g) { return seen = g; });
  sum(branch + z).backward();
  CHECK(seen.to_vector() == Values{1, 1});
}

// The twin keeps every gradient that it reads, so that its sums must go elsewhere.
TEST_CASE("a leaf's gradient is summed over passes in memory that nobody else sees", "[autograd]") {
  constexpr std::int64_t kSize = 50000;
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
    Generator generator(4);
    const Tensor x = randn({kSize}, generator, dtype).set_requires_grad();
    const Tensor twin = Tensor(x.local().clone()).set_requires_grad();
    Tensors kept;
    std::vector<Values> then;
    const void* memory = nullptr;
    for (int pass = 1; pass <= 4; ++pass) {
      const Tensor factor = randn({kSize}, generator, dtype);
      const auto product = [&factor](const Tensor& t) { return sum(t * factor); };
      const Tensor loss = product(x);
      const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
      reset_peak(Device::Cpu);
      loss.backward();
      // This pass's gradient, and not the sum beside it.
      CHECK(allocator_stats(Device::Cpu).peak_live_bytes - before <= kSize * size_of(dtype) + 1000);
      if (pass > 1) CHECK(x.grad().local().raw() == memory);
      memory = x.grad().local().raw();
      product(twin).backward();
      kept.push_back(twin.grad());
      then.push_back(kept.back().to_vector());
      CHECK(x.grad().to_vector() == then.back());
    }
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].to_vector() == then[i]);
  }
}

TEST_CASE("a gradient that somebody sees does not change with the next pass", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  // The gradients 2 and then 5, the first of them seen in some way.
  const auto passes = [&x](const std::function<std::function<Values()>()>& see) {
    x.zero_grad();
    sum(x * 2.0 * leaf({1, 1, 1})).backward();
    const std::function<Values()> seen = see();
    const Values first = seen();
    sum(x * 3.0 * leaf({1, 1, 1})).backward();
    CHECK(seen() == first);
    CHECK(x.grad().to_vector() == Values{5, 5, 5});
  };
  const auto values = [](const Tensor& t) { return [t] { return t.to_vector(); }; };
  const auto values_of_array = [](const Array& a) { return [a] { return a.to_vector(); }; };
  passes([&] { return values(x.grad()); });
  passes([&] { return values(x.grad().detach()); });
  passes([&] { return values_of_array(x.grad().local()); });
  passes([&] { return values_of_array(x.grad().local().slice(0, 1, 1)); });
  // Set by hand: a tensor that is kept, and memory of the caller's.
  const Tensor mine = tensor(Values{2, 2, 2}, {3}, DType::F64);
  passes([&] {
    x.set_grad(mine);
    return values(mine);
  });
  Values memory{2, 2, 2};
  passes([&] {
    x.set_grad(Tensor(Array::wrap(memory.data(), {3}, {1}, DType::F64)));
    return [&memory] { return memory; };
  });
  // One element that stands for all.
  passes([&] {
    x.set_grad(Tensor(Array::full({1}, 2, DType::F64).expand({3})));
    return [] { return Values(); };
  });
}

TEST_CASE("leaves that share a gradient's memory are summed apart", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});
  const Tensor given = tensor(Values{5, 6}, {2}, DType::F64);
  (x + w).backward(given);
  sum(x * leaf({7, 8})).backward();
  CHECK(x.grad().to_vector() == Values{12, 14});
  CHECK(w.grad().to_vector() == Values{5, 6});
  sum(w * leaf({1, 1})).backward();
  CHECK(w.grad().to_vector() == Values{6, 7});
  CHECK(x.grad().to_vector() == Values{12, 14});
  CHECK(given.to_vector() == Values{5, 6});
}

TEST_CASE("a gradient with a history is summed without one, and keeps what it was", "[autograd]") {
  const Tensor x = leaf({2, -3});
  sum(x * x * x).backward(Tensor(), create());
  const Tensor penalty = sum(x.grad() * x.grad());
  sum(x * x).backward();
  CHECK_FALSE(x.grad().requires_grad());
  CHECK(x.grad().to_vector() == Values{12 + 4, 27 - 6});
  x.zero_grad();
  penalty.backward();
  CHECK(x.grad().to_vector() == Values{36 * 8, 36 * -27});
}

// Only hooks and callers make such gradients: parts that sum up in place would be maxima of sums.
TEST_CASE("gradients of which maxima or products are owed are not added part by part", "[autograd]") {
  const DeviceMesh mesh = all_meshes().front();
  const Dims sizes{3, 2};
  const Tensor values = tensor(Values{1, -2, 3, 0.5, 4, -1}, sizes, DType::F64);
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product}) {
    Placements placements(static_cast<std::size_t>(mesh.ndim()));
    placements[0] = Partial(op);
    const SpecPtr owed = ShardSpec::make(mesh, placements, sizes);
    INFO(owed->str());
    Tensor x = Tensor(values.local(), ShardSpec::replicated(mesh, sizes)).set_requires_grad();
    placements[0] = Shard(0);
    const auto branch = [&](double factor) {
      const Tensor y = redistribute(x, ShardSpec::make(mesh, placements, sizes));
      y.register_hook([factor, owed](const Tensor& g) { return redistribute(g * factor, owed); });
      return sum(y * values);
    };
    for (const double times : {1.0, 2.0}) {
      (branch(2) + branch(3)).backward();
      Values expected = values.to_vector();
      for (double& v : expected) v *= 5 * times;
      CHECK(x.grad().to_vector() == expected);
    }
  }
}
