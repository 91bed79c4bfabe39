#include "ops/points/points.h"

#include <cstring>
#include <map>
#include <numeric>

#include "autograd/adjoints.h"
#include "mesh/mesh_state.h"
#include "ops/elementwise/elementwise.h"
#include "ops/indexing/take.h"
#include "ops/points/arrays.h"
#include "ops/points/cloud.h"
#include "ops/points/row_specs.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"

namespace tessera {
namespace {

constexpr int kMostDims = 8;

void check_inputs(const char* op, const Tensor& points, const Tensor& queries) {
  for (const auto& [name, t] : {std::pair{"points", &points}, {"queries", &queries}}) {
    TS_CHECK(t->defined(), op, "{} is undefined", name);
    TS_CHECK(t->dim() == 2 && t->size(1) >= 1 && t->size(1) <= kMostDims, op,
             "{} has sizes {}; [rows, dims] with 1 to {} dims is needed", name, t->sizes().str(), kMostDims);
    TS_CHECK(is_floating(t->dtype()), op, "{} is {}; f32, f64, bf16 or f16 is needed", name,
             name_of(t->dtype()));
    TS_CHECK(t->device() != Device::Meta, op, "{} is on device {}, which has no values to search", name,
             name_of(t->device()));
  }
  TS_CHECK(points.device() == queries.device(), op,
           "points are on {} and queries on {}, they must be on one device", name_of(points.device()),
           name_of(queries.device()));
  TS_CHECK(points.size(1) == queries.size(1), op, "points {} and queries {} differ in their dims",
           points.sizes().str(), queries.sizes().str());
  TS_CHECK(points.dtype() == queries.dtype(), op, "points are {}, queries {}; one type is needed",
           name_of(points.dtype()), name_of(queries.dtype()));
}

// As it is compared with distances.
double checked_radius(const char* op, double radius, DType dtype) {
  TS_CHECK(radius >= 0, op, "radius {} was given, 0 or more is needed", radius);
  return dtype == DType::F64 ? radius : static_cast<double>(static_cast<float>(radius));
}

// Both inputs cut along their rows; no rank has queries that another one of its copy of the points has too.
Strategy search_inputs(const std::vector<SpecPtr>& in) {
  const SpecPtr points = points::row_cut(*in[0]);
  return {{points, points::row_cut(*in[1], points->shard_mask())}, {}};
}

// ---- gradients ----

// Everything that a gradient of distances needs; one per recorded search.
struct Pairs {
  SavedTensor points;   // [P, D]
  SavedTensor queries;  // [Q, D]
  SavedTensor indices;  // [Q, k] or [N]
  SavedTensor rows;     // [N]: the queries of a list; undefined: entry [q, j] is query q's
};

// Rows of a table by number (-1: none, zeros), and the sums of terms at their rows: each other's gradient.
Tensor rows_of(const Tensor& table, const Tensor& numbers) {
  static const OpDef op{"neighbor_rows"};
  return take(op, {.checked = true, .nearby = true}, table, numbers);
}
Tensor sums_at(const Tensor& terms, const Tensor& numbers, const Tensor& like) {
  static const OpDef op{"neighbor_sums"};
  return put(op, {.checked = true, .nearby = true}, terms, numbers, {like.size(0), like.spec()});
}

// From each neighbour to its query, and length 1; 0 where there is no direction.
Tensor directions(const Tensor& apart, const Tensor& indices) {
  const DType dtype = apart.dtype();
  const Tensor squares = sum(square(apart), {-1});
  const Tensor there = to(ge(indices, full({}, 0, DType::I64)), dtype);
  const Tensor usable = gt(squares * there, full({}, 0, dtype));
  const Tensor one = full({}, 1, dtype);
  const Tensor inverse = where(usable, rsqrt(where(usable, squares, one)), full({}, 0, dtype));
  return apart * unsqueeze(inverse, -1);
}

Tensors distance_gradient(const char* op, const Pairs& pairs, const BackwardContext& needs, const Tensor& g) {
  if (!g.defined()) return Tensors(2);
  const Tensor points = pairs.points.unpack(op);
  const Tensor queries = pairs.queries.unpack(op);
  const Tensor indices = pairs.indices.unpack(op);
  const bool listed = pairs.rows.defined();
  const DType dtype = is_half(g.dtype()) ? DType::F32 : g.dtype();
  const Tensor theirs = rows_of(to(points, dtype), indices);
  const Tensor own =
      listed ? rows_of(to(queries, dtype), pairs.rows.unpack(op)) : unsqueeze(to(queries, dtype), 1);
  const Tensor there = ge(indices, full({}, 0, DType::I64));
  const Tensor weights = where(there, to(g, dtype), full({}, 0, dtype));
  const Tensor pull = unsqueeze(weights, -1) * directions(own - theirs, indices);
  Tensors grads(2);
  if (needs.needs(0)) grads[0] = to(neg(sums_at(pull, indices, points)), g.dtype());
  if (needs.needs(1))
    grads[1] = to(listed ? sums_at(pull, pairs.rows.unpack(op), queries) : sum(pull, {1}), g.dtype());
  return grads;
}

// ---- a fixed number of neighbours ----

struct NearestProblem {
  const OpDef* op = nullptr;
  std::int64_t k = 0;
  double limit = 0;
};

// Distances, indices, counts.
Tensors search_nearest(const NearestProblem& p, const Tensor& points, const Tensor& queries) {
  const std::array<Tensor, 2> inputs{points, queries};
  const std::int64_t q = queries.size(0);
  const std::array<Dims, 3> sizes{Dims{q, p.k}, Dims{q, p.k}, Dims{q}};
  auto plan = [&](const std::vector<SpecPtr>& in) {
    Strategy s = search_inputs(in);
    for (const Dims& d : sizes) s.outputs.push_back(points::with_rows_of(*s.inputs[1], d));
    return s;
  };
  auto local = [&](LocalCall& call) {
    std::optional<points::Nearest> found = points::find_among_few(call, p.k, p.limit);
    if (!found) found = find_nearest(points::cloud_of(p.op->name, call), p.k, p.limit);
    call.out[0] = found->distances.to(points.dtype());
    call.out[1] = std::move(found->ids);
    call.out[2] = std::move(found->counts);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    Pairs pairs{SavedTensor(in[0]), SavedTensor(in[1]), SavedTensor(out[1]), {}};
    return [name = p.op->name, pairs = std::move(pairs)](const BackwardContext& needs, const Tensors& g) {
      return distance_gradient(name, pairs, needs, g[0]);
    };
  };
  OpCall c;
  c.op = p.op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  c.parameters = Hash().add(p.k);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

}  // namespace

NearestNeighbors knn(const Tensor& points, const Tensor& queries, std::int64_t k) {
  static const OpDef op{"knn"};
  check_inputs(op.name, points, queries);
  TS_CHECK(k >= 1 && k <= points.size(0), op.name, "k = {} was given for {} points; 1 to {} is allowed", k,
           points.size(0), points.size(0));
  if (points.device() != Device::Cpu) {  // the search itself works on the host
    const NearestNeighbors found = knn(to(points, Device::Cpu), to(queries, Device::Cpu), k);
    return {to(found.distances, points.device()), to(found.indices, points.device())};
  }
  const Tensors out = search_nearest({&op, k, std::numeric_limits<double>::infinity()}, points, queries);
  return {out[0], out[1]};
}

RadiusNeighbors radius_search(const Tensor& points, const Tensor& queries, double radius,
                              std::int64_t max_neighbors) {
  static const OpDef op{"radius_search"};
  check_inputs(op.name, points, queries);
  TS_CHECK(max_neighbors >= 1, op.name, "max_neighbors = {} was given, 1 or more is needed", max_neighbors);
  check_storable(op.name, {queries.size(0), max_neighbors}, DType::I64);
  if (const Device there = points.device(); there != Device::Cpu) {
    const RadiusNeighbors found =
        radius_search(to(points, Device::Cpu), to(queries, Device::Cpu), radius, max_neighbors);
    return {to(found.distances, there), to(found.indices, there), to(found.counts, there)};
  }
  const double limit = checked_radius(op.name, radius, points.dtype());
  const Tensors out = search_nearest({&op, max_neighbors, limit}, points, queries);
  return {out[0], out[1], out[2]};
}

// ---- lists ----

namespace {

// Where the lists of one interval of queries lie among all.
struct ListCut {
  SpecPtr spec;                      // of the flat lists; null: plain
  std::vector<std::int64_t> starts;  // of each local interval of queries
  std::int64_t total = 0;
};

// How many entries each interval of each rank's queries has; one small message.
std::vector<std::vector<std::int64_t>> gather_totals(const ShardSpec& queries, const Array& counts) {
  std::string mine;
  const auto* next = counts.data<std::int64_t>();
  for (const Interval i : queries.intervals(0)) {
    const std::int64_t total = std::accumulate(next, next + i.length(), std::int64_t{0});
    next += i.length();
    mine.append(reinterpret_cast<const char*>(&total), sizeof total);
  }
  std::vector<std::vector<std::int64_t>> all;
  for (const std::string& theirs : queries.mesh_core()->comm.all_gather_bytes(mine)) {
    all.emplace_back(theirs.size() / sizeof(std::int64_t));
    if (!theirs.empty()) std::memcpy(all.back().data(), theirs.data(), theirs.size());
  }
  return all;
}

ListCut cut_lists(const ShardSpec& queries, const Array& counts) {
  const MeshCore& core = *queries.mesh_core();
  const auto totals = gather_totals(queries, counts);
  struct Run {
    std::int64_t row;
    std::int64_t total;
    std::int64_t start;
  };
  // In the order of the queries; ranks with the same queries say the same.
  std::map<std::int64_t, Run> runs;
  for (int r = 0; r < core.size; ++r)
    for (std::size_t i = 0; i < queries.intervals(0, r).size(); ++i) {
      const std::int64_t row = queries.intervals(0, r)[i].lo;
      runs[row] = {row, totals[static_cast<std::size_t>(r)][i], 0};
    }
  ListCut cut;
  for (auto& [row, run] : runs) {
    run.start = cut.total;
    cut.total += run.total;
  }
  for (const Interval i : queries.intervals(0)) cut.starts.push_back(runs[i.lo].start);
  std::vector<std::optional<DimCut>> cuts(1);
  if (const CutPtr& rows = queries.cut(0)) {
    cuts[0].emplace();
    cuts[0]->axes = rows->axes;
    for (const Intervals& part : rows->parts) {
      Intervals lists;
      for (const Interval i : part) lists.push_back({runs[i.lo].start, runs[i.lo].start + runs[i.lo].total});
      cuts[0]->parts.push_back(std::move(lists));
    }
  }
  cut.spec = ShardSpec::make(queries.mesh(), queries.placements(), {cut.total}, std::move(cuts));
  return cut;
}

// offsets [m] and rows [n] of this rank's queries.
std::pair<Array, Array> list_positions(const ShardSpec* queries, const ListCut& cut, const Array& counts) {
  const Array offsets = Array::empty({counts.numel()}, DType::I64);
  const auto* count = counts.data<std::int64_t>();
  const Array rows = Array::empty({points::sum_of(counts)}, DType::I64);
  auto* offset = offsets.data<std::int64_t>();
  auto* row = rows.data<std::int64_t>();
  const Intervals whole{{0, counts.numel()}};
  const Intervals& intervals = queries != nullptr ? queries->intervals(0) : whole;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    std::int64_t start = queries != nullptr ? cut.starts[i] : 0;
    for (std::int64_t q = intervals[i].lo; q < intervals[i].hi; ++q, ++count) {
      *offset++ = start;
      start += *count;
      row = std::fill_n(row, *count, q);
    }
  }
  return {offsets, rows};
}

// The searches themselves: counts as a tensor, this rank's lists beside it. Inputs are cut along rows.
Tensor search_lists(const OpDef& op, const std::array<Tensor, 2>& inputs, double radius,
                    points::Lists& lists) {
  const Dims sizes{inputs[1].size(0)};
  auto plan = [&](const std::vector<SpecPtr>& in) {
    Strategy s = search_inputs(in);
    s.outputs.push_back(points::with_rows_of(*s.inputs[1], sizes));
    return s;
  };
  auto local = [&](LocalCall& call) {
    std::optional<points::Lists> found = points::find_within_among_few(call, radius);
    lists = found ? std::move(*found) : find_within(points::cloud_of(op.name, call), radius);
    call.out[0] = lists.counts;
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.plan = plan;
  c.local = local;
  return call_one(c);
}

// Cut as a search needs them, once for the search and its gradient.
std::array<Tensor, 2> cut_inputs(const char* op, const Tensor& points, const Tensor& queries) {
  std::array<Tensor, 2> inputs{points, queries};
  const DeviceMesh mesh = mesh_of(op, inputs);
  if (!mesh.defined()) return inputs;
  std::vector<SpecPtr> specs;
  for (const Tensor& t : inputs)
    specs.push_back(t.is_sharded() ? t.spec() : ShardSpec::replicated(mesh, t.sizes()));
  const Strategy s = search_inputs(specs);
  for (std::size_t i = 0; i < 2; ++i)
    if (s.inputs[i] != specs[i]) inputs[i] = redistribute(inputs[i], s.inputs[i]);
  return inputs;
}

}  // namespace

NeighborLists radius_search(const Tensor& points, const Tensor& queries, double radius) {
  static const OpDef op{"radius_lists"};
  check_inputs("radius_search", points, queries);
  if (const Device there = points.device(); there != Device::Cpu) {
    const NeighborLists found = radius_search(to(points, Device::Cpu), to(queries, Device::Cpu), radius);
    return {to(found.distances, there), to(found.indices, there), to(found.counts, there),
            to(found.offsets, there), to(found.rows, there)};
  }
  const double limit = checked_radius("radius_search", radius, points.dtype());
  const std::array<Tensor, 2> inputs = cut_inputs("radius_search", points, queries);
  points::Lists lists;
  NeighborLists result;
  result.counts = search_lists(op, inputs, limit, lists);
  const SpecPtr& spec = result.counts.spec();
  ListCut cut;
  if (spec) cut = cut_lists(*spec, lists.counts);
  const auto [offsets, rows] = list_positions(spec.get(), cut, lists.counts);
  const auto placed = [&](const Array& local, const SpecPtr& where) {
    return where ? Tensor(local, where) : Tensor(local);
  };
  result.offsets = placed(offsets, spec);
  result.rows = placed(rows, cut.spec);
  result.indices = placed(lists.ids, cut.spec);
  result.distances = placed(lists.distances.to(points.dtype()), cut.spec);
  const auto gradient = [&]() -> GradFunction {
    Pairs pairs{SavedTensor(inputs[0]), SavedTensor(inputs[1]), SavedTensor(result.indices),
                SavedTensor(result.rows)};
    return [pairs = std::move(pairs)](const BackwardContext& needs, const Tensors& g) {
      return distance_gradient("radius_search", pairs, needs, g[0]);
    };
  };
  record("radius_search", inputs, {&result.distances, 1}, gradient, true);
  return result;
}

}  // namespace tessera
