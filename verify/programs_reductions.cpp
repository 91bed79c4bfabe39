#include "verify/program_table.h"

namespace tessera::verify {

void add_reductions(OpTable& t) {
  t["sum"] = reduction(sum);
  t["mean"] = reduction(mean);
  t["amax"] = reduction(amax);
  t["amin"] = reduction(amin);
  t["var"] = [](const Call& c) -> Tensors {
    return {var(c.in(0), c.dims("dim", {}), c.get("correction", 1.0), c.get("keepdim", false))};
  };
  t["softmax"] = along(softmax);
  t["log_softmax"] = along(log_softmax);
}

}  // namespace tessera::verify
