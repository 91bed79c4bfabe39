#include "ops/points/cloud.h"

#include "mesh/mesh_state.h"
#include "ops/points/arrange.h"
#include "ops/points/arrays.h"
#include "ops/points/point_kernels.h"
#include "ops/points/row_specs.h"
#include "ops/points/survey.h"

namespace tessera::points {
namespace {

namespace kernel = kernels::points;
using cpu::points::PointTree;

// Global rows of a local array that is cut along rows.
Array global_rows(const ShardSpec* spec, std::int64_t n) {
  if (spec == nullptr) return counted(n);
  Array rows = Array::empty({n}, DType::I64);
  auto* to = rows.data<std::int64_t>();
  for (const Interval i : spec->intervals(0))
    for (std::int64_t row = i.lo; row < i.hi; ++row) *to++ = row;
  return rows;
}

// f32 or f64, contiguous.
Array coordinates(const Array& x) { return (is_half(x.dtype()) ? x.to(DType::F32) : x).contiguous(); }

}  // namespace

void check_ordered(const char* op, std::int64_t bad_point, std::int64_t bad_query) {
  for (const auto& [name, row] : {std::pair{"points", bad_point}, {"queries", bad_query}})
    TS_CHECK(row < 0, op, "row {} of {} has a coordinate that is not finite", row, name);
}

Cloud cloud_of(const char* op, const LocalCall& call) {
  Cloud c;
  c.op = op;
  c.points = coordinates(call.in[0]);
  c.queries = coordinates(call.in[1]);
  c.point_ids = global_rows(call.in_spec(0), c.points.size(0));
  c.query_ids = global_rows(call.in_spec(1), c.queries.size(0));
  if (const ShardSpec* spec = call.in_spec(0)) {
    const MeshCore& core = *spec->mesh_core();
    c.comm = core.comm;
    // Other rows of the same copy: nothing has to leave the axes that cut the rows.
    for (int r = 0; r < core.size; ++r)
      c.partners.push_back(core.same_coordinates(~spec->shard_mask(), core.rank, r));
  }
  return c;
}

namespace {

Nearest nearest_of(Survey& survey, std::int64_t k, double limit) {
  const Cloud& cloud = survey.cloud();
  const std::int64_t m = cloud.queries.size(0);
  Nearest found{Array::empty({m, k}, cloud.queries.dtype()), Array::empty({m, k}, DType::I64),
                Array::zeros({m}, DType::I64)};
  const auto look_in = [&](const PointTree& tree) {
    kernel::nearest(cloud.queries.device(), {tree, cloud.queries, survey.queries().order, limit,
                                             found.distances, found.ids, found.counts});
  };
  look_in(survey.points());
  if (survey.spread()) {
    survey.reach(found, survey.ask(k, limit), limit);
    look_in(survey.fetch(k));
  }
  kernel::pad_rows(cloud.queries.device(), found.distances, found.ids, found.counts);
  return found;
}

Lists within_of(Survey& survey, double radius) {
  const Cloud& cloud = survey.cloud();
  std::vector<PointTree> trees{survey.points()};
  if (survey.spread()) {
    survey.reach(radius);
    trees.push_back(survey.fetch(INT64_MAX));
  }
  const Device device = cloud.queries.device();
  Lists lists{Array::zeros({cloud.queries.size(0)}, DType::I64), {}, {}};
  Array ends;
  const auto look = [&] {
    for (const PointTree& tree : trees)
      kernel::within_radius(device, {tree, cloud.queries, survey.queries().order, radius, lists.counts, ends,
                                     lists.distances, lists.ids});
  };
  look();  // counts
  ends = starts_of(lists.counts);
  lists.distances = Array::empty({sum_of(lists.counts)}, cloud.queries.dtype());
  lists.ids = Array::empty(lists.distances.sizes(), DType::I64);
  look();  // fills
  kernel::sort_lists(device, {lists.counts, ends, lists.distances, lists.ids});
  return lists;
}

}  // namespace

namespace {

// A ball around a query that holds k points of this rank's holds a few times as many of all.
constexpr double kLikely = 4;

}  // namespace

Nearest find_nearest(const Cloud& cloud, std::int64_t k, double limit) {
  Survey survey(cloud);
  const std::optional<Arrangement> arranged =
      Arrangement::of(survey, kLikely * static_cast<double>(k), limit);
  if (!arranged) return nearest_of(survey, k, limit);
  Survey there(arranged->cloud());
  return arranged->back(nearest_of(there, k, limit));
}

std::optional<Nearest> find_among_few(const LocalCall& call, std::int64_t k, double limit) {
  const auto alone = [](const ShardSpec* spec) {
    return spec == nullptr || (spec->mesh().size() == 1 && spec->intervals(0).size() <= 1);
  };
  if (call.in[0].size(0) > cpu::points::kLeafPoints || !alone(call.in_spec(0))) return {};
  const Array points = coordinates(call.in[0]);
  const Array queries = coordinates(call.in[1]);
  const std::int64_t m = queries.size(0);
  Nearest found{Array::empty({m, k}, queries.dtype()), Array::empty({m, k}, DType::I64),
                Array::empty({m}, DType::I64)};
  const Array unordered = Array::empty({2}, DType::I64);
  kernel::nearest_of_few(queries.device(),
                         {points, queries, limit, found.distances, found.ids, found.counts, unordered});
  const auto* row = unordered.data<std::int64_t>();
  if (row[0] >= 0 || row[1] >= 0) return {};  // these are rows of the local arrays
  return found;
}

std::optional<Lists> find_within_among_few(const LocalCall& call, double radius) {
  constexpr std::int64_t kMostPairs = 4096;  // which are all kept for a moment
  const std::int64_t n = call.in[0].size(0);
  const std::int64_t m = call.in[1].size(0);
  if (n == 0 || n * m > kMostPairs) return {};
  const std::optional<Nearest> found = find_among_few(call, n, radius);
  if (!found) return {};
  const std::int64_t total = sum_of(found->counts);
  Lists lists{found->counts, Array::empty({total}, found->distances.dtype()),
              Array::empty({total}, DType::I64)};
  const auto join = [&](const Array& to, const Array& rows) {
    const auto item = static_cast<std::size_t>(size_of(to.dtype()));
    auto* next = static_cast<char*>(to.raw());
    const auto* from = static_cast<const char*>(rows.raw());
    const auto* count = found->counts.data<std::int64_t>();
    for (std::int64_t q = 0; q < m; ++q, from += static_cast<std::size_t>(n) * item) {
      const std::size_t bytes = static_cast<std::size_t>(count[q]) * item;
      std::copy_n(from, bytes, next);
      next += bytes;
    }
  };
  join(lists.distances, found->distances);
  join(lists.ids, found->ids);
  return lists;
}

Lists find_within(const Cloud& cloud, double radius) {
  Survey survey(cloud);
  const std::optional<Arrangement> arranged =
      Arrangement::of(survey, std::numeric_limits<double>::infinity(), radius);
  if (!arranged) return within_of(survey, radius);
  Survey there(arranged->cloud());
  return arranged->back(within_of(there, radius));
}

}  // namespace tessera::points
