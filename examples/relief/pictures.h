// The numbers behind the pictures that gnuplot draws (relief.gp).
#pragma once
#include <string>

#include "examples/relief/data.h"

namespace tessera::relief {

// Refuses a region in which the middle of no block lies.
void check_region(const ReliefData& data, const LonLatBox& region);

// Collective over the data's domain; `path` is written where `write` says so. Cells that a region holds out,
// latitude by latitude with an empty line after each: longitude, latitude, the means of the coarse map's
// blocks, bicubic interpolation, the model, the truth. `region` may cross the map's seam.
void write_region(const std::string& path, bool write, const ReliefData& data, const LonLatBox& region,
                  const Tensor& model);

}  // namespace tessera::relief
