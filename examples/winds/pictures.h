// The numbers behind the pictures that gnuplot draws (loss.gp, map.gp).
#pragma once
#include <string>

#include "examples/winds/data.h"

namespace tessera::winds {

// "July 1989" for month 114: months are counted from January 1980.
std::string month_name(int month);

// Local, for one rank that has gathered the whole map. Writes the columns of map.gp: longitude, latitude,
// true u and v, forecast u and v. `truth` and `forecast`: [2, rows, cols] of the grid, m/s.
void write_map(const std::string& path, const WindData& data, const Array& truth, const Array& forecast);

// Local. The relief of the earth that lies beside the winds (etopo60.cdf of the same package), from which
// map.gp draws the coast: columns longitude, latitude, height in m. False, and nothing written, if it is not
// there.
bool write_relief(const std::string& path, const std::string& wind_file);

}  // namespace tessera::winds
