// Calls that must be refused: with the operation's name, in the same words on every rank, before anything is
// sent, whatever the placements.
#pragma once
#include <catch2/catch.hpp>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

namespace tessera::refusal_cases {

using namespace mesh_cases;

struct Refusal {
  std::string op;  // the error names it
  std::vector<std::pair<Dims, DType>> inputs;
  std::function<void(const Tensors&)> call;
  std::vector<std::string> said;  // all of it is in the message
};

inline Tensor placed(Random& random, const DeviceMesh* mesh, const Dims& sizes, DType dtype) {
  if (mesh == nullptr || chance(random, 20)) return Tensor(Array::full(sizes, 1, dtype));
  const SpecPtr spec = random_spec(random, *mesh, sizes, {.partial = dtype != DType::Bool});
  return Tensor(Array::full(spec->local_sizes(), 1, dtype), spec);
}

// The call is refused: with the operation's name and all that is to be said, alike on all ranks, with nothing
// sent.
inline void check_message(const std::string& op, const std::function<void()>& call,
                          const std::vector<std::string>& said) {
  Recorder& recorder = test_world().recorder();
  const Recorder::Totals before = recorder.totals();
  const std::string message = refusal(call);
  CHECK(recorder.totals().calls == before.calls);
  INFO(message);
  CHECK(contains(message, op + ":"));
  for (const std::string& part : said) CHECK(contains(message, part));
  CHECK(same_everywhere(message));
}

inline void check_refused(Random& random, const DeviceMesh* mesh, const Refusal& r) {
  Tensors inputs;
  std::string text = r.op;
  for (const auto& [sizes, dtype] : r.inputs) {
    inputs.push_back(placed(random, mesh, sizes, dtype));
    text += fmt::format("\n  {} {}", name_of(dtype),
                        inputs.back().is_sharded() ? inputs.back().spec()->str() : sizes.str());
  }
  INFO(text);
  check_message(
      r.op, [&] { r.call(inputs); }, r.said);
}

inline void check_all(const std::vector<Refusal>& refusals, std::uint64_t stream) {
  auto random = test_random(stream);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (const Refusal& r : refusals) {
    check_refused(random, nullptr, r);
    for (int trial = 0; trial < trials(8); ++trial) check_refused(random, &pick(random, meshes), r);
  }
}

}  // namespace tessera::refusal_cases
