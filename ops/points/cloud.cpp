#include "ops/points/cloud.h"

#include <numeric>

#include "mesh/mesh_state.h"
#include "ops/points/point_kernels.h"
#include "ops/points/route.h"
#include "ops/points/row_specs.h"

namespace tessera::points {
namespace {

namespace kernel = kernels::points;
using cpu::points::PointTree;

// Boxes that a rank publishes at most, and points that a box holds at least.
constexpr int kPublishedLevels = 6;

PointTree make_tree(const Array& points, const Array& ids) {
  const std::int64_t n = points.size(0);
  const std::int64_t dims = points.size(1);
  PointTree tree;
  tree.levels = cpu::points::tree_levels(n);
  const std::int64_t nodes = cpu::points::tree_nodes(tree.levels);
  tree.coords = Array::empty({dims, n}, points.dtype(), points.device());
  tree.ids = Array::empty({n}, DType::I64, points.device());
  tree.order = Array::empty({n}, DType::I64, points.device());
  tree.boxes = Array::empty({nodes, 2, dims}, points.dtype(), points.device());
  tree.first_ids = Array::empty({nodes}, DType::I64, points.device());
  kernel::build_tree(points.device(), {tree, points, ids});
  return tree;
}

Array counted(std::int64_t n) {
  Array a = Array::empty({n}, DType::I64);
  std::iota(a.data<std::int64_t>(), a.data<std::int64_t>() + n, std::int64_t{0});
  return a;
}

int published_level(const PointTree& tree) { return std::min(tree.levels, kPublishedLevels); }

// The boxes of one level of a tree; none of an empty one. Weights: the points in them.
Cells cells_of(const PointTree& tree) {
  if (tree.empty()) return {};
  const int level = published_level(tree);
  const std::int64_t n = std::int64_t{1} << static_cast<unsigned>(level);
  Cells cells{tree.boxes.slice(0, n - 1, n), Array::empty({n}, DType::F64)};
  for (std::int64_t c = 0; c < n; ++c) {
    const cpu::points::TreeRange r = cpu::points::range_of(tree.size(), n + c);
    cells.weights.data<double>()[c] = static_cast<double>(r.end - r.begin);
  }
  return cells;
}

// A search under way: both trees of this rank, and what the ranks have published.
class Search {
 public:
  explicit Search(const Cloud& cloud)
      : cloud_(cloud),
        spread_(std::count(cloud.partners.begin(), cloud.partners.end(), true) > 1),
        bad_point_(unordered(cloud.points, cloud.point_ids)),
        bad_query_(unordered(cloud.queries, cloud.query_ids)) {
    if (bad_point_ < 0) own_ = make_tree(cloud.points, cloud.point_ids);
    if (bad_query_ < 0) queries_ = make_tree(cloud.queries, counted(cloud.queries.size(0)));
  }

  // Whether other ranks hold points too: known from the specs alone.
  bool spread() const { return spread_; }
  const PointTree& own() const { return own_; }
  const PointTree& queries() const { return queries_; }

  // Step 1 of route.h, and the refusal that the ranks share.
  void publish_points(double reach) {
    Summary mine{bad_point_, bad_query_, {}, {}};
    if (spread_ && bad_point_ < 0) mine.points = cells_of(own_);
    if (spread_ && bad_query_ < 0 && reach >= 0) {
      mine.queries = cells_of(queries_);
      if (mine.queries.count() > 0) mine.queries.weights.fill_(reach);
    }
    if (!cloud_.comm.defined()) {
      refuse(bad_point_, bad_query_);
      return;
    }
    known_ = publish(cloud_.comm, mine);
    refuse(first_of(&Summary::bad_point), first_of(&Summary::bad_query));
  }

  // The same for queries whose reach follows from what they have found.
  void publish_queries(const Nearest& found, double limit) {
    Summary mine;
    mine.queries = cells_of(queries_);
    if (mine.queries.count() > 0) {
      const Cells all = all_points();
      kernel::cell_reach(cloud_.queries.device(),
                         {queries_, published_level(queries_), all.boxes, all.weights, limit, found.distances,
                          found.counts, mine.queries.weights});
    }
    std::vector<Summary> reaches = publish(cloud_.comm, mine);
    for (std::size_t r = 0; r < known_.size(); ++r) known_[r].queries = std::move(reaches[r].queries);
  }

  // Steps 2 and 3: the points of other ranks within reach of this rank's queries.
  PointTree fetch() const {
    const auto me = static_cast<std::size_t>(cloud_.comm.rank());
    const std::size_t ranks = known_.size();
    Partners partners{std::vector<bool>(ranks, false), std::vector<bool>(ranks, false)};
    RowRoute::Lists gives(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == me || !cloud_.partners[r]) continue;
      partners.take[r] = near(known_[me].queries, known_[r].points);
      partners.give[r] = near(known_[r].queries, known_[me].points);
      if (partners.give[r]) gives[r] = rows_within(known_[r].queries);
    }
    const RowRoute route = RowRoute::giving(cloud_.comm, std::move(gives), partners);
    const std::array<Array, 2> rows{cloud_.point_ids, cloud_.points};
    const std::vector<Array> came = route.forward(rows);
    return make_tree(came[1], came[0]);
  }

 private:
  static std::int64_t unordered(const Array& x, const Array& ids) {
    Array row = Array::empty({1}, DType::I64);
    kernel::first_unordered_row(x.device(), row, x);
    const std::int64_t found = row.data<std::int64_t>()[0];
    return found < 0 ? -1 : ids.data<std::int64_t>()[found];
  }

  std::int64_t first_of(std::int64_t Summary::*row) const {
    std::int64_t first = -1;
    for (const Summary& s : known_)
      if (s.*row >= 0 && (first < 0 || s.*row < first)) first = s.*row;
    return first;
  }
  void refuse(std::int64_t bad_point, std::int64_t bad_query) const {
    TS_CHECK(bad_point < 0, cloud_.op, "row {} of points has a coordinate that is not finite", bad_point);
    TS_CHECK(bad_query < 0, cloud_.op, "row {} of queries has a coordinate that is not finite", bad_query);
  }

  // The boxes of the points of all partners.
  Cells all_points() const {
    std::int64_t n = 0;
    for (std::size_t r = 0; r < known_.size(); ++r)
      if (cloud_.partners[r]) n += known_[r].points.count();
    Cells all{Array::empty({n, 2, cloud_.queries.size(1)}, cloud_.queries.dtype()),
              Array::empty({n}, DType::F64)};
    std::int64_t at = 0;
    for (std::size_t r = 0; r < known_.size(); ++r) {
      const Cells& theirs = known_[r].points;
      if (!cloud_.partners[r] || theirs.count() == 0) continue;
      all.boxes.slice(0, at, theirs.count()).copy_(theirs.boxes);
      all.weights.slice(0, at, theirs.count()).copy_(theirs.weights);
      at += theirs.count();
    }
    return all;
  }

  bool near(const Cells& queries, const Cells& points) const {
    if (queries.count() == 0 || points.count() == 0) return false;
    const Array answer = Array::zeros({1}, DType::Bool);
    kernel::any_near(cloud_.points.device(), {queries.boxes, queries.weights, points.boxes, answer});
    return *answer.data<bool>();
  }

  Array rows_within(const Cells& queries) const {
    const std::int64_t n = cloud_.points.size(0);
    const Array mask = Array::empty({n}, DType::Bool);
    kernel::within_reach(cloud_.points.device(), {own_, queries.boxes, queries.weights, mask});
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < n; ++i)
      if (mask.data<bool>()[i]) rows.push_back(i);
    Array list = Array::empty({static_cast<std::int64_t>(rows.size())}, DType::I64);
    std::copy(rows.begin(), rows.end(), list.data<std::int64_t>());
    return list;
  }

  const Cloud& cloud_;
  bool spread_;
  std::int64_t bad_point_;
  std::int64_t bad_query_;
  PointTree own_;
  PointTree queries_;
  std::vector<Summary> known_;
};

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
Array coordinates(const Array& x) { return (x.dtype() == DType::BF16 ? x.to(DType::F32) : x).contiguous(); }

}  // namespace

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
    for (int r = 0; r < core.size; ++r) c.partners.push_back(same_copy(*spec, core.rank, r));
  }
  return c;
}

Nearest find_nearest(const Cloud& cloud, std::int64_t k, double limit) {
  Search search(cloud);
  search.publish_points(-1);
  const std::int64_t m = cloud.queries.size(0);
  Nearest found{Array::empty({m, k}, cloud.queries.dtype()), Array::empty({m, k}, DType::I64),
                Array::zeros({m}, DType::I64)};
  const auto look_in = [&](const PointTree& tree) {
    kernel::nearest(cloud.queries.device(), {tree, cloud.queries, search.queries().order, limit,
                                             found.distances, found.ids, found.counts});
  };
  look_in(search.own());
  if (search.spread()) {
    search.publish_queries(found, limit);
    look_in(search.fetch());
  }
  kernel::pad_rows(cloud.queries.device(), found.distances, found.ids, found.counts);
  return found;
}

Lists find_within(const Cloud& cloud, double radius) {
  Search search(cloud);
  search.publish_points(radius);
  std::vector<PointTree> trees{search.own()};
  if (search.spread()) trees.push_back(search.fetch());
  const std::int64_t m = cloud.queries.size(0);
  const Array ends = Array::empty({m}, DType::I64);
  Lists lists{Array::zeros({m}, DType::I64), {}, {}};
  const Device device = cloud.queries.device();
  const auto look = [&] {
    for (const PointTree& tree : trees)
      kernel::within_radius(device, {tree, cloud.queries, search.queries().order, radius, lists.counts, ends,
                                     lists.distances, lists.ids});
  };
  look();
  const auto* counts = lists.counts.data<std::int64_t>();
  std::exclusive_scan(counts, counts + m, ends.data<std::int64_t>(), std::int64_t{0});
  const std::int64_t total = std::accumulate(counts, counts + m, std::int64_t{0});
  lists.distances = Array::empty({total}, cloud.queries.dtype());
  lists.ids = Array::empty({total}, DType::I64);
  look();
  kernel::sort_lists(device, {lists.counts, ends, lists.distances, lists.ids});
  return lists;
}

}  // namespace tessera::points
