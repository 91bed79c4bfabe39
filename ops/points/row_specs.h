// Specs of tensors that are cut along dim 0, their rows.
#pragma once
#include "mesh/spec.h"

namespace tessera::points {

// The spec with its rows cut over the axes of `mask` too: every part of the rows, as it is, is shared out
// evenly over them. What those axes did before (cutting another dim, owing a sum) ends.
SpecPtr cut_further(const ShardSpec& spec, unsigned mask);
// Cut along rows only: axes that cut another dim, owe a sum or are in `also` cut the rows instead, so that no
// rank gets more than its share. Moves nothing where they were Replicate.
SpecPtr row_cut(const ShardSpec& spec, unsigned also = 0);
// Another tensor with as many rows, cut like those.
SpecPtr with_rows_of(const ShardSpec& rows, const Dims& sizes);

}  // namespace tessera::points
