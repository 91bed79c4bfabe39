#include "ops/points/survey.h"

#include <numeric>

#include "ops/numbers.h"
#include "ops/points/arrays.h"
#include "ops/points/point_kernels.h"

namespace tessera::points {
namespace {

namespace kernel = kernels::points;
using cpu::points::PointTree;

// A rank publishes 2^6 boxes at most, and asks its neighbours with as many as 2^11, and more where that makes
// no more than kLeafPoints queries a box.
constexpr int kPublishedLevels = 6;
constexpr int kQueryLevels = 11;

PointTree make_tree(const Array& points, const Array& ids, int levels) {
  const std::int64_t n = points.size(0);
  const std::int64_t dims = points.size(1);
  const std::int64_t nodes = cpu::points::tree_nodes(levels);
  PointTree tree;
  tree.levels = levels;
  tree.coords = Array::empty({dims, n}, points.dtype(), points.device());
  tree.ids = Array::empty({n}, DType::I64, points.device());
  tree.order = Array::empty({n}, DType::I64, points.device());
  tree.boxes = Array::empty({nodes, 2, dims}, points.dtype(), points.device());
  tree.first_ids = Array::empty({nodes}, DType::I64, points.device());
  kernel::build_tree(points.device(), {tree, points, ids});
  return tree;
}
PointTree make_tree(const Array& points, const Array& ids) {
  return make_tree(points, ids, cpu::points::tree_levels(points.size(0)));
}
// Finer than a search needs it: a box of queries that is larger than need be costs points that travel. (Some
// nodes of a small tree are empty, and their boxes are near nothing.)
PointTree make_query_tree(const Array& queries) {
  const std::int64_t n = queries.size(0);
  int levels = cpu::points::tree_levels(n);
  while (levels < kQueryLevels && std::int64_t{1} << static_cast<unsigned>(levels) < n) ++levels;
  return make_tree(queries, counted(n), levels);
}

std::int64_t first_unordered(const Array& x, const Array& ids) {
  const Array row = Array::empty({1}, DType::I64);
  kernel::first_unordered(x.device(), row, x, ids);
  return *row.data<std::int64_t>();
}

std::vector<std::int64_t> rows_where(const Array& mask) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < mask.numel(); ++i)
    if (mask.data<bool>()[i]) rows.push_back(i);
  return rows;
}

int published_level(const PointTree& tree) { return std::min(tree.levels, kPublishedLevels); }

// The boxes of one level of a tree, none of an empty one. Weights: how many are in each.
Cells cells_of(const PointTree& tree) {
  if (tree.empty()) return {};
  const std::int64_t n = std::int64_t{1} << static_cast<unsigned>(published_level(tree));
  Cells cells{tree.boxes.slice(0, n - 1, n), Array::empty({n}, DType::F64)};
  for (std::int64_t c = 0; c < n; ++c) {
    const cpu::points::TreeRange r = cpu::points::range_of(tree.size(), n + c);
    cells.weights.data<double>()[c] = static_cast<double>(r.end - r.begin);
  }
  return cells;
}

}  // namespace

Survey::Survey(const Cloud& cloud)
    : cloud_(cloud), partners_(std::count(cloud.partners.begin(), cloud.partners.end(), true)) {
  Summary mine;
  mine.bad_point = first_unordered(cloud.points, cloud.point_ids);
  mine.bad_query = first_unordered(cloud.queries, cloud.query_ids);
  const bool good = mine.bad_point < 0 && mine.bad_query < 0;
  if (good) {
    points_ = make_tree(cloud.points, cloud.point_ids);
    queries_ = make_query_tree(cloud.queries);
    reach_ = Array::zeros({cpu::points::tree_nodes(queries_.levels)}, DType::F64);
  }
  if (good && spread()) {
    mine.points = cells_of(points_);
    mine.queries = cells_of(queries_);
  }
  known_ = cloud.comm.defined() ? publish(cloud.comm, mine) : std::vector<Summary>{mine};
  check_ordered(cloud.op, first_bad(&Summary::bad_point), first_bad(&Summary::bad_query));
}

std::int64_t Survey::first_bad(std::int64_t Summary::*row) const {
  std::int64_t first = -1;
  for (const Summary& s : known_)
    if (s.*row >= 0 && (first < 0 || s.*row < first)) first = s.*row;
  return first;
}

bool Survey::disordered(double per_query, double radius) const {
  if (partners_ < 3) return false;  // nothing is copied more than once
  const auto me = static_cast<std::size_t>(cloud_.comm.rank());
  // Rows that this rank would copy, less those that it holds.
  double rows = -static_cast<double>(points_.size() + queries_.size());
  const Array expected = Array::empty({1}, DType::F64);
  for (std::size_t r = 0; r < known_.size(); ++r) {
    const Cells& theirs = known_[r].points;
    if (r == me || !cloud_.partners[r] || theirs.count() == 0) continue;
    kernel::expected_rows(cloud_.points.device(),
                          {queries_, theirs.boxes, theirs.weights, per_query, radius, expected});
    rows += *expected.data<double>();
  }
  const Array all = Array::full({1}, rows, DType::F64);
  cloud_.comm.all_reduce(all, ReduceOp::Sum).wait();
  return *all.data<double>() > 0;
}

void Survey::reach(double radius) {
  for (Summary& s : known_)
    if (s.queries.count() > 0) s.queries.weights.fill_(radius);
  reach_.fill_(radius);
}

// Which queries this rank asks of whom; the same rule tells who asks this rank.
RowRoute Survey::questions(std::int64_t k, double limit) const {
  const auto me = static_cast<std::size_t>(cloud_.comm.rank());
  const std::size_t ranks = known_.size();
  const Cells points = all_points();
  const Cells cells = all_queries();
  const Array nearer = Array::empty({cells.count()}, DType::I64);
  const Array asking = owners(&Summary::queries);
  kernel::others_nearer(cloud_.points.device(), {cells.boxes, asking, points.boxes, points.weights,
                                                 owners(&Summary::points), k, limit, nearer});
  Partners partners{std::vector<bool>(ranks, false), std::vector<bool>(ranks, false)};
  RowRoute::Lists rows(ranks);
  std::int64_t node = known_[me].queries.count();  // of this rank's next cell in its tree
  for (std::int64_t c = 0; c < cells.count(); ++c) {
    const auto who = static_cast<std::size_t>(asking.data<std::int64_t>()[c]);
    const std::int64_t mine = who == me ? node++ : 0;
    const auto whom = static_cast<std::size_t>(nearer.data<std::int64_t>()[c]);
    if (whom == me) partners.take[who] = true;
    if (who != me || whom >= ranks) continue;
    partners.give[whom] = true;
    const cpu::points::TreeRange q = cpu::points::range_of(queries_.size(), mine);
    const auto* order = queries_.order.data<std::int64_t>();
    rows[whom].insert(rows[whom].end(), order + q.begin, order + q.end);
  }
  return RowRoute::giving(cloud_.comm, rows, partners);
}

Array Survey::ask(std::int64_t k, double limit) const {
  const RowRoute route = questions(k, limit);
  const Device device = cloud_.queries.device();
  const DType dtype = cloud_.queries.dtype();
  const Array theirs = route.forward({&cloud_.queries, 1}).front();
  const std::int64_t n = theirs.size(0);
  const Array distances = Array::empty({n, k}, dtype);
  const Array ids = Array::empty({n, k}, DType::I64);
  const Array counts = Array::zeros({n}, DType::I64);
  kernel::nearest(device, {points_, theirs, counted(n), limit, distances, ids, counts});
  kernel::pad_rows(device, distances, ids, counts);
  const Array bounds = Array::full({cloud_.queries.size(0)}, std::numeric_limits<double>::infinity(), dtype);
  route.put_back(distances.slice(1, k - 1, 1).reshape({n}), bounds);
  return bounds;
}

void Survey::reach(const Nearest& found, const Array& bounds, double limit) {
  Summary mine;
  mine.queries = cells_of(queries_);
  if (mine.queries.count() > 0) {
    const Cells points = all_points();
    kernel::query_reach(cloud_.queries.device(),
                        {queries_, published_level(queries_), points.boxes, points.weights, limit,
                         found.distances, found.counts, bounds, reach_});
    mine.queries.weights.copy_(reach_.slice(0, mine.queries.count() - 1, mine.queries.count()));
  }
  std::vector<Summary> reaches = publish(cloud_.comm, mine);
  for (std::size_t r = 0; r < known_.size(); ++r) known_[r].queries = std::move(reaches[r].queries);
}

std::vector<std::int64_t> Survey::cells_near(const Cells& points) const {
  const Array mask = Array::empty(reach_.sizes(), DType::Bool);
  kernel::cells_near(cloud_.queries.device(), {queries_, reach_, points.boxes, mask});
  return rows_where(mask);
}

// The nodes of the queries' tree: each row a box and its reach.
Array Survey::cell_rows() const {
  const std::int64_t n = reach_.numel();
  const std::int64_t numbers = 2 * cloud_.queries.size(1);
  const Array rows = Array::empty({n, numbers + 1}, cloud_.queries.dtype());
  rows.slice(1, 0, numbers).copy_(queries_.boxes.reshape({n, numbers}));
  rows.slice(1, numbers, 1).copy_(reach_.reshape({n, 1}).to(rows.dtype()));
  return rows;
}

PointTree Survey::fetch(std::int64_t most) const {
  const auto me = static_cast<std::size_t>(cloud_.comm.rank());
  const std::size_t ranks = known_.size();
  Partners points{std::vector<bool>(ranks, false), std::vector<bool>(ranks, false)};
  RowRoute::Lists asks(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == me || !cloud_.partners[r]) continue;
    points.take[r] = near(known_[me].queries, known_[r].points);
    points.give[r] = near(known_[r].queries, known_[me].points);
    if (points.take[r]) asks[r] = cells_near(known_[r].points);
  }
  const RowRoute asking = RowRoute::giving(cloud_.comm, asks, {points.take, points.give});
  const Array cells = cell_rows();
  const Array asked = asking.forward({&cells, 1}).front();
  RowRoute::Lists gives(ranks);
  std::int64_t first = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t n = asking.taken(static_cast<int>(r));
    if (n > 0) gives[r] = rows_within(asked.slice(0, first, n), most);
    first += n;
  }
  const RowRoute route = RowRoute::giving(cloud_.comm, gives, points);
  const std::array<Array, 2> rows{cloud_.point_ids, cloud_.points};
  const std::vector<Array> came = route.forward(rows);
  return make_tree(came[1], came[0]);
}

Cells Survey::joined(Cells Summary::*cells) const {
  std::int64_t n = 0;
  for (std::size_t r = 0; r < known_.size(); ++r)
    if (cloud_.partners[r]) n += (known_[r].*cells).count();
  Cells all{Array::empty({n, 2, cloud_.queries.size(1)}, cloud_.queries.dtype()),
            Array::empty({n}, DType::F64)};
  std::int64_t at = 0;
  for (std::size_t r = 0; r < known_.size(); ++r) {
    const Cells& theirs = known_[r].*cells;
    if (!cloud_.partners[r] || theirs.count() == 0) continue;
    all.boxes.slice(0, at, theirs.count()).copy_(theirs.boxes);
    all.weights.slice(0, at, theirs.count()).copy_(theirs.weights);
    at += theirs.count();
  }
  return all;
}

Array Survey::owners(Cells Summary::*cells) const {
  std::vector<std::int64_t> list;
  for (std::size_t r = 0; r < known_.size(); ++r)
    if (cloud_.partners[r])
      list.insert(list.end(), static_cast<std::size_t>((known_[r].*cells).count()),
                  static_cast<std::int64_t>(r));
  return numbers_of(list);
}

bool Survey::near(const Cells& queries, const Cells& points) const {
  if (queries.count() == 0 || points.count() == 0) return false;
  const Array answer = Array::zeros({1}, DType::Bool);
  kernel::any_near(cloud_.points.device(), {queries.boxes, queries.weights, points.boxes, answer});
  return *answer.data<bool>();
}

std::vector<std::int64_t> Survey::rows_within(const Array& cell_rows, std::int64_t most) const {
  const std::int64_t n = cell_rows.size(0);
  const std::int64_t numbers = cell_rows.size(1) - 1;
  const Array boxes = cell_rows.slice(1, 0, numbers).contiguous().reshape({n, 2, numbers / 2});
  const Array reach = cell_rows.slice(1, numbers, 1).to(DType::F64).contiguous();
  const Array mask = Array::empty({cloud_.points.size(0)}, DType::Bool);
  kernel::within_reach(cloud_.points.device(), {points_, boxes, reach, most, mask});
  return rows_where(mask);
}

}  // namespace tessera::points
