// One rank meets an error that the others know nothing of, and they wait for it: a file that it alone reads,
// or ("index") a wrong number in its part of an index, in a call without a message.
#include <string_view>

#include "ops/ops.h"
#include "runtime/error.h"
#include "train/program.h"

namespace ts = tessera;

namespace {

void look_up(ts::Runtime& runtime) {
  const ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
  const ts::SpecPtr spec = ts::ShardSpec::make(mesh, {ts::Shard(0)}, {3 * runtime.size()});
  const ts::Array part = ts::Array::full({3}, runtime.rank() == runtime.size() - 1 ? 9 : 0, ts::DType::I64);
  ts::sum(ts::embedding(ts::ones({9, 2}), ts::Tensor(part, spec))).item();
}

}  // namespace

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int count, char** arguments) {
    if (count > 1 && std::string_view(arguments[1]) == "index") look_up(runtime);
    if (runtime.rank() == runtime.size() - 1) TS_FAIL(Io, "reader", "the last rank cannot go on");
    runtime.world().barrier();
    return 0;
  });
}
