// nn::Embedding: PyTorch's initial values, padding, and the same training on cut indices as on whole ones.
#include "nn/nn.h"
#include "ops/ops.h"
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
  CHECK(text([] { nn::Embedding(-1, 2); }) == "Embedding: -1 rows of width 2 given; neither may be negative");
  CHECK(text([] { nn::Embedding(4, 2)(ones({3})); }) == "embedding: the index must be i64 or i32, given f32");
}

}  // namespace tessera
