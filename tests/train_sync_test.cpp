// The same model on every rank: made so, checked, and refused by name where it is not.
#include "nn/nn.h"
#include "tests/nn_cases.h"
#include "train/sync.h"

namespace tessera {
namespace {

class Model : public nn::Module {
 public:
  Model(std::int64_t width, std::uint64_t seed) : first(3, width), second(width, 2, {.dtype = DType::F64}) {
    register_module("first", first);
    register_module("second", second);
    count = register_buffer("count", Tensor(Array::full({2}, static_cast<double>(seed), DType::I64)));
    initialize(seed);
  }
  nn::Linear first, second;
  Tensor count;
};

}  // namespace

TEST_CASE("sync_module gives every rank the values of rank 0", "[train][sync]") {
  const DeviceMesh mesh(test_world(), {{"ddp", test_world().size()}});
  Model model(5, static_cast<std::uint64_t>(mesh.rank()) + 1);
  model.to(test_device());
  Model expected(5, 1);
  if (mesh.size() > 1) {
    const std::string text = refusal([&] { train::check_replicas(model, mesh); });
    CHECK_THAT(text, Catch::Contains("'first.weight' on rank 1"));
    CHECK(same_everywhere(text));
  }
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  train::sync_module(model, mesh);
  recorder.stop();
  CHECK(recorder.count("broadcast") == 3);  // one per dtype
  train::check_replicas(model, mesh);
  for (const nn::NamedTensor& n : expected.state()) {
    INFO(n.name);
    bool found = false;
    for (const nn::NamedTensor& m : model.state())
      if (m.name == n.name) found = m.tensor.to_vector() == n.tensor.to_vector();
    CHECK(found);
  }
  // The last bit counts.
  if (mesh.rank() == mesh.size() - 1 && mesh.size() > 1) {
    const Array bias = model.second.bias.local();
    std::vector<double> values = bias.to_vector();
    values[1] = std::nextafter(values[1], 10.0);
    bias.copy_(Array::from(values, bias.sizes(), bias.dtype()).to(bias.device()));
  }
  if (mesh.size() > 1)
    CHECK_THAT(refusal([&] { train::check_replicas(model, mesh); }),
               Catch::Contains(fmt::format("'second.bias' on rank {}", mesh.size() - 1)));
}

TEST_CASE("models that differ are refused by the first difference", "[train][sync]") {
  const DeviceMesh mesh(test_world(), {{"ddp", test_world().size()}});
  if (mesh.size() == 1) return;
  Model model(mesh.rank() == mesh.size() - 1 ? 6 : 5, 1);
  model.to(test_device());
  const std::string text = refusal([&] { train::sync_module(model, mesh); });
  CHECK_THAT(text,
             Catch::Contains("'first.weight f32 [5, 3]' on rank 0 and 'first.weight f32 [6, 3]' on rank " +
                             std::to_string(mesh.size() - 1)));
  CHECK(same_everywhere(text));
}

}  // namespace tessera
