// One rank meets an error that the others know nothing of, and they wait for it: a file that it alone reads,
// or, in calls without a message, a wrong number in its part of an index, of the classes of a target or of
// probabilities. Named so: the operation, and the rank that meets it (the last one).
#include <string_view>

#include "ops/ops.h"
#include "runtime/error.h"
#include "train/program.h"

namespace ts = tessera;

namespace {

struct Lone {
  ts::Runtime& runtime;
  int rank;
  ts::DeviceMesh mesh{runtime.world(), {{"domain", runtime.size()}}};
  std::int64_t size = 3 * runtime.size();

  // [size, rest...], cut along dim 0: `wrong` on the rank, `right` on the others.
  ts::Tensor numbers(double right, double wrong, ts::DType dtype, ts::Dims rest = {}) const {
    rest.insert(0, size);
    const ts::SpecPtr spec = ts::ShardSpec::make(mesh, {ts::Shard(0)}, rest);
    return {ts::Array::full(spec->local_sizes(), runtime.rank() == rank ? wrong : right, dtype), spec};
  }
  ts::Tensor index(double wrong, const ts::Dims& rest = {}) const {
    return numbers(0, wrong, ts::DType::I64, rest);
  }
};

ts::Tensor meet(const Lone& lone, std::string_view what) {
  const ts::Tensor table = ts::ones({9, 2});
  const ts::Tensor logits = ts::ones({lone.size, 4});
  if (what == "embedding") return ts::embedding(table, lone.index(9));
  if (what == "index_select") return ts::index_select(table, 0, lone.index(-1));
  if (what == "gather") return ts::gather(table, 0, lone.index(9, {2}));
  if (what == "take_along_dim") return ts::take_along_dim(table, lone.index(-10, {2}), 0);
  if (what == "scatter_add") return ts::scatter_add(table, 0, lone.index(9, {2}), ts::ones({lone.size, 2}));
  if (what == "one_hot") return ts::one_hot(lone.index(9), 9);
  if (what == "cross_entropy")
    return ts::cross_entropy(logits, lone.index(4), {}, {.reduction = ts::Reduction::Sum});
  if (what == "nll_loss") return ts::nll_loss(logits, lone.index(4), {}, {.reduction = ts::Reduction::None});
  const ts::Tensor p = lone.numbers(0.5, 1.5, ts::DType::F32);
  TS_CHECK(what == "binary_cross_entropy", "lone_error_program", "no operation {} here", what);
  return ts::binary_cross_entropy(p, ts::zeros_like(p));
}

}  // namespace

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int count, char** arguments) {
    const int rank = count > 2 ? std::stoi(arguments[2]) : runtime.size() - 1;
    // Whatever is not refused there is asked for where all must take part.
    if (count > 1) ts::to(ts::sum(meet({runtime, rank}, arguments[1])), ts::DType::F64).item();
    if (runtime.rank() == rank) TS_FAIL(Io, "reader", "the last rank cannot go on");
    runtime.world().barrier();
    return 0;
  });
}
