// One rank meets an error that the others know nothing of, and they wait for it: a file that it alone reads,
// or, in calls without a message, a wrong number in its part of an index ("index"), of the classes of a
// target
// ("target") or of probabilities ("probability").
#include <string_view>

#include "ops/ops.h"
#include "runtime/error.h"
#include "train/program.h"

namespace ts = tessera;

namespace {

// `wrong` on the last rank, `right` on the others, three times each.
ts::Tensor lone(ts::Runtime& runtime, double right, double wrong, ts::DType dtype) {
  const ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
  const ts::SpecPtr spec = ts::ShardSpec::make(mesh, {ts::Shard(0)}, {3 * runtime.size()});
  const bool last = runtime.rank() == runtime.size() - 1;
  return ts::Tensor(ts::Array::full({3}, last ? wrong : right, dtype), spec);
}

void meet(ts::Runtime& runtime, std::string_view what) {
  if (what == "index") ts::sum(ts::embedding(ts::ones({9, 2}), lone(runtime, 0, 9, ts::DType::I64))).item();
  if (what == "target")
    ts::cross_entropy(ts::ones({3 * runtime.size(), 4}), lone(runtime, 0, 4, ts::DType::I64), {},
                      {.reduction = ts::Reduction::Sum})
        .item();
  if (what == "probability") {
    const ts::Tensor p = lone(runtime, 0.5, 1.5, ts::DType::F32);
    ts::binary_cross_entropy(p, ts::zeros_like(p)).item();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int count, char** arguments) {
    if (count > 1) meet(runtime, arguments[1]);
    if (runtime.rank() == runtime.size() - 1) TS_FAIL(Io, "reader", "the last rank cannot go on");
    runtime.world().barrier();
    return 0;
  });
}
