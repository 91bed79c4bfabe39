#include "verify/program_table.h"

namespace tessera::verify {

void add_norms(OpTable& t) {
  t["layer_norm"] = [](const Call& c) -> Tensors {
    return {layer_norm(c.in(0), c.dims("normalized_shape"), c.maybe(1), c.maybe(2), c.get("eps", 1e-5))};
  };
}

}  // namespace tessera::verify
