// nn::Embedding: PyTorch's initial values, padding, and the same training on cut indices as on whole ones.
#include <algorithm>

#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"
#include "tests/nn_cases.h"

namespace tessera {

TEST_CASE("an embedding's initial values are normal, its padding row zeros", "[nn]") {
  nn::Embedding table(400, 50, {.padding_idx = -1});
  const std::vector<double> w = table.weight.to_vector();
  double sum = 0;
  double squares = 0;
  for (const double v : w) {
    sum += v;
    squares += v * v;
  }
  const auto n = static_cast<double>(w.size()) - 50;
  CHECK(std::abs(sum / n) < 0.05);
  CHECK(std::abs(squares / n - 1) < 0.05);
  CHECK(std::vector<double>(w.end() - 50, w.end()) == std::vector<double>(50, 0.0));
  table.initialize(7);
  CHECK(table.weight.to_vector() != w);
  CHECK(largest(slice(table.weight, 0, 399).to_vector()) == 0.0);
  CHECK(table.named_parameters().front().name == "weight");
}

TEST_CASE("an embedding of cut indices trains as of whole ones", "[nn][parity]") {
  auto random = test_random(40);
  const nn::EmbeddingOptions options{.padding_idx = 3, .dtype = DType::F64};
  for (const DeviceMesh& mesh : domain_meshes()) {
    nn::Embedding sharded(9, 4, options);
    nn::Embedding serial(9, 4, options);
    for (int step = 0; step < 3; ++step) {
      std::vector<double> numbers(35);
      for (double& v : numbers) v = static_cast<double>(random_int(random, 0, 8));
      const Tensor index(Array::from(numbers, {5, 7}, DType::I64));
      const Tensor cotangent = random_tensor(random, {5, 7, 4});
      std::vector<int> dims(static_cast<std::size_t>(mesh.ndim()), 1);
      dims.front() = 0;
      const Tensor y = sharded(index.redistribute(random_spec(random, mesh, {5, 7}, dims)));
      CHECK(error_of(y, serial(index)) == 0.0);
      y.backward(cotangent);
      serial(index).backward(cotangent);
      check_gradients(sharded, serial, 1e-12);
      CHECK(largest(slice(sharded.weight.grad(), 0, 3, 4).to_vector()) == 0.0);
      sharded.zero_grad();
      serial.zero_grad();
    }
  }
}

// Values by PyTorch 2.15: torch.nn.functional.embedding of these rows, max_norm 1.
TEST_CASE("max_norm shortens the rows that any rank names, in every copy of the table", "[nn]") {
  const std::vector<double> before{3, 4, 0.3, 0.4, 0, 0, -6, 8, 5, 12};
  const std::vector<double> after{0.6, 0.8, 0.3, 0.4, 0, 0, -0.6, 0.8, 5, 12};  // row 4 is not named
  auto random = test_random(41);
  for (const DeviceMesh& mesh : domain_meshes())
    for (int trial = 0; trial < 8; ++trial) {
      const Tensor index(Array::from(std::vector<double>{3, 0, 1, 0, 2, 3, 3, 0}, {8}, DType::I64));
      const Tensor whole(Array::from(before, {5, 2}, DType::F64));
      SpecPtr spec = mesh_cases::random_spec(random, mesh, {5, 2}, {.partial = true});
      while (std::any_of(spec->placements().begin(), spec->placements().end(),
                         [](const Placement& p) { return p.is_partial() && p.op == ReduceOp::Product; }))
        spec = mesh_cases::random_spec(random, mesh, {5, 2}, {.partial = true});
      Tensor table = trial % 4 == 0 ? whole.detach() : redistribute(whole, spec).detach();
      const Array own = table.local().clone();
      table = table.is_sharded() ? Tensor(own, table.spec()) : Tensor(own);
      table.set_requires_grad();
      const std::uint32_t version = table.local().version();
      const Tensor y = embedding(table, redistribute(index, mesh_cases::random_spec(random, mesh, {8})),
                                 {.max_norm = 1.0});
      CHECK(table.local().version() > version);
      const std::vector<double> now = table.to_vector();
      for (std::size_t i = 0; i < after.size(); ++i) CHECK(now[i] == Approx(after[i]).margin(1e-6));
      CHECK(y.to_vector()[0] == Approx(now[6]));
      // Nothing of it is in the gradient: how often each row is named.
      sum(y).backward();
      CHECK(table.grad().to_vector() == std::vector<double>{3, 3, 1, 1, 1, 1, 3, 3, 0, 0});
    }
}

TEST_CASE("gradients by frequency are divided by how often all ranks name a row", "[nn]") {
  auto random = test_random(42);
  for (const DeviceMesh& mesh : domain_meshes()) {
    const std::vector<double> numbers{1, 0, 1, 1, 3, 1, 0, 3};
    const Tensor index = redistribute(Tensor(Array::from(numbers, {8}, DType::I64)),
                                      mesh_cases::random_spec(random, mesh, {8}));
    nn::Embedding table(5, 1, {.padding_idx = 3, .scale_grad_by_freq = true, .dtype = DType::F64});
    table(index).backward(
        Tensor(Array::from(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, {8, 1}, DType::F64)));
    CHECK(table.weight.grad().to_vector() == std::vector<double>{4.5, 3.5, 0, 0, 0});
  }
}

TEST_CASE("a table that is shortened must not owe a product, and backward notices that it was", "[nn]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Tensor index(Array::from(std::vector<double>{0, 1}, {2}, DType::I64));
  const Tensor owed(Array::full({3, 2}, 2.0, DType::F32),
                    ShardSpec::make(mesh, {Partial(ReduceOp::Product)}, {3, 2}));
  CHECK_THROWS_WITH(embedding(owed, index, {.max_norm = 1.0}), Catch::Contains("must not owe a product"));
  Tensor table = full({3, 2}, 2.0).set_requires_grad();
  const Tensor squares = square(table);
  embedding(table, index, {.max_norm = 1.0});
  CHECK_THROWS_WITH(sum(squares).backward(), Catch::Contains("changed in place"));
}

TEST_CASE("what an embedding refuses", "[nn]") {
  const auto text = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  CHECK(text([] { nn::Embedding(4, 2, {.padding_idx = 4}); }) ==
        "Embedding: padding_idx 4 is out of range for 4 rows");
  CHECK(text([] { nn::Embedding(-1, 2); }) ==
        "Embedding: num_embeddings -1 and embedding_dim 2 given; neither may be negative");
  CHECK(text([] { nn::Embedding(4, 2)(ones({3})); }) == "embedding: the index must be i64 or i32, given f32");
}

}  // namespace tessera
