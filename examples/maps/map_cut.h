// How a map of rows and columns is cut over the axes of a mesh.
#pragma once
#include <vector>

#include "mesh/spec.h"
#include "train/config.h"

namespace tessera::maps {

// The dims of a tensor [N, C, rows, cols].
constexpr int kRowDim = 2;
constexpr int kColDim = 3;

// The cells of one rank: the product of its rows and its columns, each a list of intervals in global indices.
struct Region {
  std::vector<Interval> rows;
  std::vector<Interval> cols;
};

// A map that is cut at multiples of a unit only (a patch, a block). Where the unit does not divide the map,
// the last part has the rest.
struct MapShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_unit = 1;
  std::int64_t col_unit = 1;
  std::int64_t padded_rows() const { return (rows + row_unit - 1) / row_unit * row_unit; }
};

// Which cells a rank holds. The first axis of the mesh besides `ddp` cuts the rows and the second one the
// columns; an axis named "lon" that comes first cuts the columns, and the other one the rows.
struct MapCut {
  DeviceMesh mesh;    // all ranks
  DeviceMesh domain;  // the axes that cut the map
  int ddp = 1;
  int replica = 0;                                 // position on the ddp axis
  Placements placements;                           // of a tensor [N, C, rows, cols] on `domain`
  std::vector<std::vector<std::int64_t>> lengths;  // per domain axis
  MapShape shape;
  Region region;  // of this rank

  // Of a tensor [n, channels, rows, cols]. `per`: every `per` rows and columns have become one (it divides
  // the unit).
  SpecPtr spec(std::int64_t n, std::int64_t channels, std::int64_t per = 1) const;
};
// Refuses, in the name of `program`, a mesh without a domain axis and one with more than two.
MapCut cut_map(const char* program, const DeviceMesh& mesh, const MapShape& shape);

// The mesh that was asked for; all ranks on one axis "domain" if none was.
DeviceMesh make_mesh(const Communicator& world, const train::MeshAxes& wanted);

}  // namespace tessera::maps
