#include "tests/mesh_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tessera::mesh_cases {
namespace {

// Pieces dealt out to the parts at random; usually a part's pieces ascend.
std::vector<Intervals> dealt_out(Random& random, std::int64_t n, int parts) {
  std::vector<Intervals> result(static_cast<std::size_t>(parts));
  const bool any_order = chance(random, 30);
  std::int64_t at = 0;
  for (const std::int64_t length : random_lengths(random, n, 2 * parts + 1)) {
    if (length == 0) continue;
    Intervals& part = result[static_cast<std::size_t>(random_int(random, 0, parts - 1))];
    part.insert(any_order && chance(random, 50) ? part.begin() : part.end(), {at, at + length});
    at += length;
  }
  return result;
}

// Position of the rank on the axes of this reduction, and how many there are.
std::pair<int, int> term_of(const ShardSpec& spec, int rank, ReduceOp op) {
  const DeviceMesh mesh = spec.mesh();
  int term = 0;
  int terms = 1;
  for (int a = 0; a < mesh.ndim(); ++a) {
    if (!(spec.placement(a) == Partial(op))) continue;
    term = term * mesh.size(a) + mesh.coordinate(a, rank);
    terms *= mesh.size(a);
  }
  return {term, terms};
}

// In the order in which they are made.
std::vector<ReduceOp> reductions_of(const ShardSpec& spec) {
  std::vector<ReduceOp> ops;
  for (const Placement& p : spec.placements())
    if (p.is_partial() && std::find(ops.begin(), ops.end(), p.op) == ops.end()) ops.push_back(p.op);
  return ops;
}

// Term `term` of `terms` that make `value`; small integers, exact in every dtype.
double one_term(ReduceOp op, double value, std::int64_t index, int term, int terms) {
  const auto holder = static_cast<int>(index % terms);
  if (op == ReduceOp::Max) return term == holder ? value : value - 1 - static_cast<double>(term % 3);
  if (op == ReduceOp::Min) return term == holder ? value : value + 1 + static_cast<double>(term % 3);
  if (op == ReduceOp::Product) return term == holder ? value : 1.0;
  const auto noise = [&](int t) { return static_cast<double>((index * 7 + t * 3) % 5 - 2); };
  if (term != holder) return noise(term);
  double rest = value;
  for (int t = 0; t < terms; ++t)
    if (t != holder) rest -= noise(t);
  return rest;
}

}  // namespace

std::vector<std::int64_t> random_lengths(Random& random, std::int64_t n, int parts) {
  std::vector<std::int64_t> points{0, n};
  for (int i = 1; i < parts; ++i) points.push_back(random_int(random, 0, n));
  std::sort(points.begin(), points.end());
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 1; i < points.size(); ++i) lengths.push_back(points[i] - points[i - 1]);
  return lengths;
}

DimCut random_cut(Random& random, const std::vector<int>& axes, std::int64_t n, int parts) {
  std::vector<std::int64_t> lengths = random_lengths(random, n, parts);
  const std::int64_t style = random_int(random, 0, 3);
  if (style == 0) {
    lengths.clear();
    for (const Interval i : default_partition(n, parts)) lengths.push_back(i.length());
  }
  if (style == 1 && parts > 1) {  // one part is surely empty
    lengths = random_lengths(random, n, parts - 1);
    lengths.insert(lengths.begin() + random_int(random, 0, parts - 1), 0);
  }
  DimCut cut = cut_from_lengths(axes, lengths);
  if (style == 3) cut.parts = dealt_out(random, n, parts);
  return cut;
}

SpecFacts random_facts(Random& random, const std::vector<int>& mesh_sizes, const Dims& sizes,
                       const SpecKinds& kinds) {
  SpecFacts facts{Placements(mesh_sizes.size()), sizes, {}};
  facts.cuts.resize(static_cast<std::size_t>(sizes.size()));
  auto op = static_cast<ReduceOp>(random_int(random, 0, 3));
  for (Placement& p : facts.placements) {
    if (kinds.mixed) op = static_cast<ReduceOp>(random_int(random, 0, 3));
    if (kinds.partial && chance(random, 30)) {
      p = Partial(op);
    } else if (!chance(random, kinds.replicate_percent) && !sizes.empty()) {
      p = Shard(static_cast<int>(random_int(random, 0, sizes.size() - 1)));
    }
  }
  for (int d = 0; d < sizes.size(); ++d) {
    std::vector<int> axes;
    int parts = 1;
    for (std::size_t a = 0; a < mesh_sizes.size(); ++a) {
      if (!facts.placements[a].is_shard() || facts.placements[a].dim != d) continue;
      axes.push_back(static_cast<int>(a));
      parts *= mesh_sizes[a];
    }
    if (axes.empty() || chance(random, 10)) continue;
    if (chance(random, 30)) std::reverse(axes.begin(), axes.end());
    DimCut cut = random_cut(random, axes, sizes[d], parts);
    while (!kinds.intervals && std::any_of(cut.parts.begin(), cut.parts.end(),
                                           [](const Intervals& part) { return part.size() > 1; }))
      cut = random_cut(random, axes, sizes[d], parts);
    facts.cuts[static_cast<std::size_t>(d)] = std::move(cut);
  }
  return facts;
}

SpecPtr random_spec(Random& random, const DeviceMesh& mesh, const Dims& sizes, const SpecKinds& kinds) {
  std::vector<int> mesh_sizes;
  for (int a = 0; a < mesh.ndim(); ++a) mesh_sizes.push_back(mesh.size(a));
  return random_facts(random, mesh_sizes, sizes, kinds).on(mesh);
}

Dims random_sizes(Random& random, int dims, std::int64_t most) {
  Dims sizes;
  for (int d = 0; d < dims; ++d) sizes.push_back(random_int(random, chance(random, 5) ? 0 : 1, most));
  return sizes;
}

std::vector<int> random_mesh_sizes(Random& random, int ranks) {
  std::vector<std::vector<int>> shapes{{ranks}};
  for (int a = 1; a <= ranks; ++a)
    if (ranks % a == 0) shapes.push_back({a, ranks / a});
  return pick(random, shapes);
}

DeviceMesh mesh_over(const Communicator& comm, const std::vector<int>& sizes) {
  std::vector<MeshAxis> axes;
  for (std::size_t a = 0; a < sizes.size(); ++a) axes.push_back({fmt::format("a{}", a), sizes[a]});
  return {comm, axes};
}

std::vector<DeviceMesh> all_meshes() {
  const Communicator world = test_world();
  std::vector<DeviceMesh> meshes{mesh_over(world, {world.size()})};
  for (int a = 1; a <= world.size(); ++a)
    if (world.size() % a == 0) meshes.push_back(mesh_over(world, {a, world.size() / a}));
  return meshes;
}

std::vector<std::int64_t> positions(const LocalLayout& layout, int dim) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(layout.sizes[dim]), -1);
  for (const Segment& s : layout.dims[static_cast<std::size_t>(dim)])
    for (std::int64_t i = 0; i < s.length; ++i) list.at(static_cast<std::size_t>(s.local + i)) = s.global + i;
  return list;
}

std::vector<std::int64_t> global_indices(const LocalLayout& layout, const Dims& global_sizes) {
  std::vector<std::int64_t> indices{0};
  for (int d = 0; d < global_sizes.size(); ++d) {
    std::vector<std::int64_t> finer;
    const std::vector<std::int64_t> along = positions(layout, d);
    for (const std::int64_t outer : indices)
      for (const std::int64_t p : along)
        finer.push_back(outer < 0 || p < 0 ? -1 : outer * global_sizes[d] + p);
    indices = std::move(finer);
  }
  return indices;
}

Array local_part(const ShardSpec& spec, int rank, const std::function<double(std::int64_t)>& value,
                 DType dtype) {
  const std::vector<ReduceOp> ops = reductions_of(spec);
  std::vector<double> values;
  for (const std::int64_t i : global_indices(layout_of(spec, rank), spec.sizes())) {
    values.push_back(value(i));
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {  // the last one gives the whole
      const auto [term, terms] = term_of(spec, rank, *op);
      if (terms > 1) values.back() = one_term(*op, values.back(), i, term, terms);
    }
  }
  return Array::from(values, spec.local_sizes(rank), dtype);
}

std::vector<double> expected_part(const ShardSpec& spec, int rank,
                                  const std::function<double(std::int64_t)>& value) {
  std::vector<double> values;
  for (const std::int64_t i : global_indices(layout_of(spec, rank), spec.sizes())) values.push_back(value(i));
  return values;
}

bool same_everywhere(const std::string& text) {
  for (const std::string& theirs : test_world().all_gather_bytes(text))
    if (theirs != text) return false;
  return true;
}

bool true_everywhere(bool mine) {
  for (const std::string& theirs : test_world().all_gather_bytes(mine ? "1" : "0"))
    if (theirs != "1") return false;
  return true;
}

int trials(int usual) {
  const char* factor = std::getenv("TESSERA_TRIALS");
  return factor == nullptr ? usual : std::max(1, static_cast<int>(std::lround(usual * std::atof(factor))));
}

}  // namespace tessera::mesh_cases
