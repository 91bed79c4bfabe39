#include "examples/maps/map_cut.h"

#include "runtime/error.h"

namespace tessera::maps {
namespace {

// Lengths of `parts` shares of n cells, at multiples of the unit.
std::vector<std::int64_t> share_lengths(std::int64_t n, std::int64_t unit, int parts) {
  std::vector<std::int64_t> lengths;
  for (Interval i : default_partition((n + unit - 1) / unit, parts))
    lengths.push_back(std::min(n, i.hi * unit) - std::min(n, i.lo * unit));
  return lengths;
}

}  // namespace

SpecPtr MapCut::spec(std::int64_t n, std::int64_t channels, std::int64_t per) const {
  std::vector<std::vector<std::int64_t>> shares = lengths;
  for (auto& of_axis : shares)
    for (std::int64_t& length : of_axis) length /= per;
  return ShardSpec::from_lengths(domain, placements, {n, channels, shape.rows / per, shape.cols / per},
                                 shares);
}

MapCut cut_map(const char* program, const DeviceMesh& mesh, const MapShape& shape) {
  MapCut cut;
  cut.mesh = mesh;
  cut.shape = shape;
  std::vector<std::string> domain_axes;
  for (const MeshAxis& a : mesh.axes())
    if (a.name != "ddp") domain_axes.push_back(a.name);
  TS_CHECK(domain_axes.size() <= 2, program,
           "the map has two dims to cut, the mesh {} has {} axes besides ddp", mesh.str(),
           domain_axes.size());
  if (mesh.has_axis("ddp")) {
    cut.ddp = mesh.size(mesh.axis("ddp"));
    cut.replica = mesh.coordinate(mesh.axis("ddp"));
  }
  cut.domain = mesh.submesh(domain_axes);
  const bool columns_first = domain_axes[0] == "lon";
  for (int a = 0; a < cut.domain.ndim(); ++a) {
    const bool rows = (a == 0) != columns_first;
    cut.placements.push_back(Shard(rows ? kRowDim : kColDim));
    cut.lengths.push_back(rows ? share_lengths(shape.rows, shape.row_unit, cut.domain.size(a))
                               : share_lengths(shape.cols, shape.col_unit, cut.domain.size(a)));
  }
  const SpecPtr spec = cut.spec(1, 1);
  cut.region = {spec->intervals(kRowDim), spec->intervals(kColDim)};
  return cut;
}

DeviceMesh make_mesh(const Communicator& world, const train::MeshAxes& wanted) {
  std::vector<MeshAxis> axes;
  for (const auto& [name, size] : wanted) axes.push_back({name, size});
  const bool ddp_alone = axes.size() == 1 && axes[0].name == "ddp";  // whole maps: "cut" into one part
  if (axes.empty() || ddp_alone) axes.push_back({"domain", ddp_alone ? 1 : world.size()});
  return {world, axes};
}

}  // namespace tessera::maps
