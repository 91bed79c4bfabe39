#include "ops/points/arrange.h"

#include "ops/indexing/kernels.h"
#include "ops/numbers.h"
#include "ops/points/arrays.h"
#include "ops/points/point_kernels.h"

namespace tessera::points {
namespace {

namespace kernel = kernels::points;

Cells together(const Cells& a, const Cells& b) {
  const std::int64_t n = a.count() + b.count();
  Cells both{Array::empty({n, 2, a.boxes.size(2)}, a.boxes.dtype()), Array::empty({n}, DType::F64)};
  both.boxes.slice(0, 0, a.count()).copy_(a.boxes);
  both.boxes.slice(0, a.count(), b.count()).copy_(b.boxes);
  both.weights.slice(0, 0, a.count()).copy_(a.weights);
  both.weights.slice(0, a.count(), b.count()).copy_(b.weights);
  return both;
}

// The rows of each region, by the rank that keeps it.
RowRoute::Lists rows_by_rank(const Array& x, const cpu::points::Regions& regions,
                             const std::vector<bool>& partners) {
  std::vector<std::size_t> keeper;
  for (std::size_t r = 0; r < partners.size(); ++r)
    if (partners[r]) keeper.push_back(r);
  const Array region = Array::empty({x.size(0)}, DType::I64);
  kernel::assign_regions(x.device(), {region, x, regions});
  RowRoute::Lists rows(partners.size());
  for (std::int64_t i = 0; i < x.size(0); ++i)
    rows[keeper[static_cast<std::size_t>(region.data<std::int64_t>()[i])]].push_back(i);
  return rows;
}

// No region may be heavier than this many fair shares.
constexpr double kFair = 3;

}  // namespace

std::optional<Arrangement> Arrangement::of(const Survey& survey, double per_query, double radius) {
  if (!survey.spread() || !survey.disordered(per_query, radius)) return std::nullopt;
  const Cloud& given = survey.cloud();
  const Cells all = together(survey.all_points(), survey.all_queries());
  const auto keepers = std::count(given.partners.begin(), given.partners.end(), true);
  const cpu::points::Regions regions = cpu::points::divide(all.boxes, all.weights, static_cast<int>(keepers));
  const Array unfair = Array::full({1}, regions.heaviest > kFair ? 1 : 0, DType::I64);
  given.comm.all_reduce(unfair, ReduceOp::Max).wait();
  if (*unfair.data<std::int64_t>() != 0) return std::nullopt;

  const Partners partners{given.partners, given.partners};
  Arrangement a;
  a.cloud_ = given;
  a.queries_ = given.queries.size(0);
  const RowRoute points =
      RowRoute::giving(given.comm, rows_by_rank(given.points, regions, given.partners), partners);
  const std::array<Array, 2> point_rows{given.point_ids, given.points};
  std::vector<Array> came = points.forward(point_rows);
  a.cloud_.point_ids = came[0];
  a.cloud_.points = came[1];
  a.route_ = RowRoute::giving(given.comm, rows_by_rank(given.queries, regions, given.partners), partners);
  const std::array<Array, 2> query_rows{given.query_ids, given.queries};
  came = a.route_.forward(query_rows);
  a.cloud_.query_ids = came[0];
  a.cloud_.queries = came[1];
  return a;
}

Nearest Arrangement::back(const Nearest& found) const {
  const std::int64_t k = found.distances.size(1);
  Nearest out{Array::empty({queries_, k}, found.distances.dtype()), Array::empty({queries_, k}, DType::I64),
              Array::empty({queries_}, DType::I64)};
  route_.put_back(found.distances, out.distances);
  route_.put_back(found.ids, out.ids);
  route_.put_back(found.counts, out.counts);
  return out;
}

Lists Arrangement::back(const Lists& found) const {
  Lists out;
  out.counts = Array::empty({queries_}, DType::I64);
  route_.put_back(found.counts, out.counts);
  const std::array<Array, 2> entries{found.ids, found.distances};
  const std::vector<Array> came = route_.lists_back(found.counts, out.counts).forward(entries);
  // They came in the order in which the queries went.
  const Array starts = starts_of(out.counts);
  std::vector<std::int64_t> from(static_cast<std::size_t>(came[0].size(0)));
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < queries_; ++i) {
    const std::int64_t q = route_.given().data<std::int64_t>()[i];
    std::int64_t to = starts.data<std::int64_t>()[q];
    for (std::int64_t n = out.counts.data<std::int64_t>()[q]; n > 0; --n)
      from[static_cast<std::size_t>(to++)] = at++;
  }
  const Array rows = numbers_of(from);
  out.ids = Array::empty(came[0].sizes(), DType::I64);
  out.distances = Array::empty(came[1].sizes(), came[1].dtype());
  kernels::take_rows(out.ids.device(), {as_rows(out.ids), as_rows(came[0]), rows});
  kernels::take_rows(out.distances.device(), {as_rows(out.distances), as_rows(came[1]), rows});
  return out;
}

}  // namespace tessera::points
