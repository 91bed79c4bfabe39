// What boxes tell about points that are elsewhere.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/points/geometry.h"
#include "ops/points/search.h"

namespace tessera::cpu::points {
namespace {

// Marks the points within reach of any cell. On the way down only cells that reach the node are kept; in a
// node that lies within reach as a whole no distances are computed.
template <int D, class T>
class Marker {
 public:
  explicit Marker(const WithinReachArgs& args)
      : args_(args),
        dims_(args.tree.dims()),
        cells_(args.cells.data<T>()),
        reach_(args.reach.data<double>()) {}

  void run() {
    std::vector<std::int64_t> all(static_cast<std::size_t>(args_.cells.size(0)));
    for (std::size_t c = 0; c < all.size(); ++c) all[c] = static_cast<std::int64_t>(c);
    visit(1, all);
  }

 private:
  const T* cell(std::int64_t c) const { return cells_ + c * 2 * dims_; }
  bool reaches(std::int64_t c, const T* lo, const T* hi) const {
    const T* box = cell(c);
    return static_cast<double>(least_distance<D>(box, box + dims_, lo, hi, dims_)) <= reach_[c];
  }

  void visit(std::int64_t node, const std::vector<std::int64_t>& cells) {
    const T* box = args_.tree.boxes.data<T>() + (node - 1) * 2 * dims_;
    const TreeRange r = range_of(args_.tree.size(), node);
    std::vector<std::int64_t> kept;
    for (const std::int64_t c : cells) {
      if (!reaches(c, box, box + dims_)) continue;
      kept.push_back(c);
      if (std::equal(box, box + dims_, box + dims_)) return mark_lowest(r);
      if (static_cast<double>(most_distance<D>(cell(c), box, dims_)) <= reach_[c]) return mark_all(node, r);
    }
    if (kept.empty()) return;
    if (!leaf(node)) {
      visit(2 * node, kept);
      visit(2 * node + 1, kept);
      return;
    }
    std::vector<T> point(static_cast<std::size_t>(dims_));
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      for (int d = 0; d < dims_; ++d)
        point[static_cast<std::size_t>(d)] = args_.tree.coords.data<T>()[d * args_.tree.size() + i];
      if (std::any_of(kept.begin(), kept.end(),
                      [&](std::int64_t c) { return reaches(c, point.data(), point.data()); }))
        mark(i);
    }
  }
  void mark_lowest(TreeRange r) {
    std::vector<std::int64_t> places(static_cast<std::size_t>(r.end - r.begin));
    std::iota(places.begin(), places.end(), r.begin);
    const auto last = places.begin() + std::min(args_.most, r.end - r.begin);
    const auto* ids = args_.tree.ids.data<std::int64_t>();
    std::nth_element(places.begin(), last, places.end(),
                     [ids](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
    std::for_each(places.begin(), last, [this](std::int64_t i) { mark(i); });
  }
  // Of a node that is within reach as a whole.
  void mark_all(std::int64_t node, TreeRange r) {
    const T* box = args_.tree.boxes.data<T>() + (node - 1) * 2 * dims_;
    if (std::equal(box, box + dims_, box + dims_)) return mark_lowest(r);
    if (!leaf(node)) {
      mark_all(2 * node, range_of(args_.tree.size(), 2 * node));
      mark_all(2 * node + 1, range_of(args_.tree.size(), 2 * node + 1));
      return;
    }
    for (std::int64_t i = r.begin; i < r.end; ++i) mark(i);
  }
  bool leaf(std::int64_t node) const {
    return node >= std::int64_t{1} << static_cast<unsigned>(args_.tree.levels);
  }
  void mark(std::int64_t at) { args_.mask.data<bool>()[args_.tree.order.data<std::int64_t>()[at]] = true; }

  const WithinReachArgs& args_;
  int dims_;
  const T* cells_;
  const double* reach_;
};

// The box around all of boxes [n, 2, dims], n > 0.
template <class T>
std::vector<T> around(const T* boxes, std::int64_t n, int dims) {
  std::vector<T> all(boxes, boxes + 2 * dims);
  for (std::int64_t b = 1; b < n; ++b)
    for (int d = 0; d < dims; ++d) {
      T& lo = all[static_cast<std::size_t>(d)];
      T& hi = all[static_cast<std::size_t>(dims + d)];
      lo = std::min(lo, boxes[2 * b * dims + d]);
      hi = std::max(hi, boxes[(2 * b + 1) * dims + d]);
    }
  return all;
}

template <int D, class T>
bool some_near(const AnyNearArgs& args) {
  const int dims = static_cast<int>(args.cells.size(2));
  const T* boxes = args.boxes.data<T>();
  const std::vector<T> all = around(boxes, args.boxes.size(0), dims);
  for (std::int64_t c = 0; c < args.cells.size(0); ++c) {
    const T* cell = args.cells.data<T>() + c * 2 * dims;
    const double reach = args.reach.data<double>()[c];
    if (static_cast<double>(least_distance<D>(cell, all.data(), dims)) > reach) continue;
    for (std::int64_t b = 0; b < args.boxes.size(0); ++b)
      if (static_cast<double>(least_distance<D>(cell, boxes + b * 2 * dims, dims)) <= reach) return true;
  }
  return false;
}

// Marks nodes of a tree of queries, see CellsNearArgs. On the way down only boxes that the node reaches are
// kept.
template <int D, class T>
class CellMarker {
 public:
  explicit CellMarker(const CellsNearArgs& args) : args_(args), dims_(args.tree.dims()) {}

  void run() {
    std::vector<std::int64_t> all(static_cast<std::size_t>(args_.boxes.size(0)));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    visit(1, all);
  }

 private:
  // Cutting a box into smaller ones gains little where the reach is longer anyway.
  bool fine(const T* cell, double reach) const {
    for (int d = 0; d < dims_; ++d)
      if (!(static_cast<double>(cell[dims_ + d]) - static_cast<double>(cell[d]) <= reach / 2)) return false;
    return true;
  }
  void visit(std::int64_t node, const std::vector<std::int64_t>& boxes) {
    const T* cell = args_.tree.boxes.data<T>() + (node - 1) * 2 * dims_;
    const double reach = args_.reach.data<double>()[node - 1];
    std::vector<std::int64_t> kept;
    for (const std::int64_t b : boxes)
      if (static_cast<double>(least_distance<D>(cell, args_.boxes.data<T>() + b * 2 * dims_, dims_)) <= reach)
        kept.push_back(b);
    if (kept.empty()) return;
    if (node >= std::int64_t{1} << static_cast<unsigned>(args_.tree.levels) || fine(cell, reach)) {
      args_.mask.data<bool>()[node - 1] = true;
      return;
    }
    visit(2 * node, kept);
    visit(2 * node + 1, kept);
  }
  const CellsNearArgs& args_;
  int dims_;
};

}  // namespace

void within_reach(const WithinReachArgs& args) {
  args.mask.zero_();
  if (args.tree.empty() || args.cells.size(0) == 0) return;
  dispatch_coordinates(args.cells.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.tree.dims(), [&](auto d) { Marker<d.value, T>(args).run(); });
  });
}

void any_near(const AnyNearArgs& args) {
  dispatch_coordinates(args.cells.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(static_cast<int>(args.cells.size(2)),
                  [&](auto d) { *args.near.data<bool>() = some_near<d.value, T>(args); });
  });
}

void cells_near(const CellsNearArgs& args) {
  args.mask.zero_();
  if (args.tree.empty() || args.boxes.size(0) == 0) return;
  dispatch_coordinates(args.boxes.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.tree.dims(), [&](auto d) { CellMarker<d.value, T>(args).run(); });
  });
}

}  // namespace tessera::cpu::points
