// What every operation refuses alike: an input that is not there, inputs of two meshes and of two devices.
// And that no operation is without a refusal of its own, unless it takes every tensor.
#include <catch2/catch.hpp>

#include <set>

#include "tests/every_call.h"
#include "tests/refusal_lists.h"

using namespace tessera;
using namespace tessera::refusal_cases;
using every_call::EveryCall;

namespace {

constexpr DType kTypes[] = {DType::Bool, DType::I32, DType::I64, DType::BF16,
                            DType::F16,  DType::F32, DType::F64};

Tensors placed_inputs(Random& random, const DeviceMesh* mesh, const EveryCall& c) {
  Tensors inputs;
  for (const auto& [sizes, dtype] : c.inputs) inputs.push_back(placed(random, mesh, sizes, dtype));
  return inputs;
}

// Of one input, of any dtype.
bool takes_every_tensor(const EveryCall& c) {
  return c.inputs.size() == 1 && std::all_of(std::begin(kTypes), std::end(kTypes), [&](DType type) {
           return refusal([&] { c.call({Tensor(Array::full(c.inputs[0].sizes, 1, type))}); }).empty();
         });
}

}  // namespace

const std::vector<RefusalList>& tessera::refusal_cases::refusal_lists() {
  static const std::vector<RefusalList> all{
      &mixture_refusals,         &integer_refusals,    &pointwise_dtype_refusals,
      &reduction_dtype_refusals, &loss_dtype_refusals, &window_dtype_refusals,
      &index_dtype_refusals,     &broadcast_refusals,  &product_refusals,
      &reduction_refusals,       &shape_refusals,      &piece_refusals,
      &window_refusals,          &index_refusals,      &more_reduction_refusals,
      &more_norm_refusals,       &more_loss_refusals,  &more_convolution_refusals,
      &more_pool_refusals,       &more_shape_refusals, &more_index_refusals,
      &huge_copy_refusals,       &huge_shape_refusals, &huge_window_refusals};
  return all;
}

TEST_CASE("no operation is without a refusal of its own", "[ops]") {
  const std::set<std::string> take_any{"to",  "affine", "contiguous", "sigmoid", "tanh",
                                       "exp", "log",    "sqrt",       "rsqrt",   "sin",
                                       "cos", "erf",    "reciprocal", "square",  "sign"};
  std::set<std::string> refused;
  for (const RefusalList list : refusal_lists())
    for (const Refusal& r : list()) refused.insert(r.op);
  for (const EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    const bool any = take_any.count(c.name) != 0;
    CHECK(any != (refused.count(c.op) != 0));
    if (any) CHECK(takes_every_tensor(c));
  }
}

TEST_CASE("an input that is not there is refused", "[ops]") {
  auto random = test_random(130);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (const EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    for (std::size_t missing = 0; missing < c.inputs.size() - c.optional; ++missing)
      for (const DeviceMesh* mesh : {static_cast<const DeviceMesh*>(nullptr), &pick(random, meshes)}) {
        Tensors inputs = placed_inputs(random, mesh, c);
        inputs[missing] = Tensor();
        check_message(c.op, [&] { c.call(inputs); }, {"undefined"});
      }
  }
}

TEST_CASE("inputs of two meshes are refused", "[ops]") {
  const DeviceMesh here(test_world(), {{"here", test_world().size()}});
  const DeviceMesh there(test_world(), {{"there", test_world().size()}});
  for (const EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    for (std::size_t other = 1; other < c.inputs.size(); ++other) {
      Tensors inputs;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        const SpecPtr spec = ShardSpec::replicated(i == other ? there : here, c.inputs[i].sizes);
        inputs.emplace_back(Array::full(c.inputs[i].sizes, 1, c.inputs[i].dtype), spec);
      }
      check_message(c.op, [&] { c.call(inputs); }, {"different meshes", "here", "there"});
    }
  }
}

TEST_CASE("inputs of two devices are refused", "[ops]") {
  for (const EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    for (std::size_t other = 1; other < c.inputs.size(); ++other) {
      Tensors inputs;
      for (std::size_t i = 0; i < c.inputs.size(); ++i) {
        const Array values = Array::full(c.inputs[i].sizes, 1, c.inputs[i].dtype);
        inputs.emplace_back(i == other ? values.to(Device::Meta) : values);
      }
      check_message(c.op, [&] { c.call(inputs); }, {"meta"});
    }
  }
}

TEST_CASE("and the calls are right but for that", "[ops]") {
  auto random = test_random(132);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (const EveryCall& c : every_call::every_call()) {
    INFO(c.name);
    const DeviceMesh& mesh = pick(random, meshes);
    Tensors inputs;  // not as sums that are owed: ones would be other numbers
    for (const auto& [sizes, dtype] : c.inputs) {
      const SpecPtr spec = random_spec(random, mesh, sizes);
      inputs.emplace_back(Array::full(spec->local_sizes(), 1, dtype), spec);
    }
    CHECK(refusal([&] { c.call(inputs); }) == "");
  }
}
