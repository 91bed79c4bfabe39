#include "nn/shape.h"

#include "runtime/error.h"

namespace tessera::nn {

Pad::Pad(int spatial_dims, const Dims& padding, PadMode mode, double value) : mode_(mode), value_(value) {
  const int sides = 2 * spatial_dims;
  TS_CHECK(padding.size() == 1 || padding.size() == sides, "Pad",
           "padding {} given for {} spatial dims; give one entry or two per dim", padding.str(),
           spatial_dims);
  for (int i = 0; i < sides; ++i) padding_.push_back(padding[padding.size() == 1 ? 0 : i]);
}

}  // namespace tessera::nn
