// What a dropout does once its stream is drawn. Internal to ops.
#pragma once
#include "ops/random/random.h"

namespace tessera {

// Element i of x draws number index_offset + i of the key's stream; p of 0 to 1.
Tensor drop_by_key(const Tensor& x, double p, const RngKey& key, std::int64_t index_offset);

}  // namespace tessera
