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

template <int D, class T>
bool some_near(const AnyNearArgs& args) {
  const int dims = static_cast<int>(args.cells.size(2));
  for (std::int64_t c = 0; c < args.cells.size(0); ++c)
    for (std::int64_t b = 0; b < args.boxes.size(0); ++b) {
      const T* cell = args.cells.data<T>() + c * 2 * dims;
      const T* box = args.boxes.data<T>() + b * 2 * dims;
      if (static_cast<double>(least_distance<D>(cell, box, dims)) <= args.reach.data<double>()[c])
        return true;
    }
  return false;
}

template <int D, class T>
double sum_touching(const TouchingWeightArgs& args) {
  const int dims = static_cast<int>(args.cells.size(2));
  double sum = 0;
  for (std::int64_t b = 0; b < args.boxes.size(0); ++b) {
    const T* box = args.boxes.data<T>() + b * 2 * dims;
    bool touches = false;
    for (std::int64_t c = 0; c < args.cells.size(0) && !touches; ++c)
      touches = least_distance<D>(args.cells.data<T>() + c * 2 * dims, box, dims) == T(0);
    if (touches) sum += args.weights.data<double>()[b];
  }
  return sum;
}

// One rank's boxes: a run of all, and the box around them.
template <class T>
struct Holder {
  std::int64_t rank = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight = 0;
  std::vector<T> around;
};

template <class T>
std::vector<Holder<T>> holders_of(const OthersNearerArgs& args, int dims) {
  std::vector<Holder<T>> list;
  for (std::int64_t b = 0; b < args.boxes.size(0); ++b) {
    const T* box = args.boxes.data<T>() + b * 2 * dims;
    const std::int64_t rank = args.box_owners.data<std::int64_t>()[b];
    if (list.empty() || list.back().rank != rank) list.push_back({rank, b, b, 0, {box, box + 2 * dims}});
    Holder<T>& h = list.back();
    h.end = b + 1;
    h.weight += args.weights.data<double>()[b];
    for (int d = 0; d < dims; ++d) {
      T& lo = h.around[static_cast<std::size_t>(d)];
      T& hi = h.around[static_cast<std::size_t>(dims + d)];
      lo = std::min(lo, box[d]);
      hi = std::max(hi, box[dims + d]);
    }
  }
  std::erase_if(list, [&](const Holder<T>& h) { return h.weight < static_cast<double>(args.k); });
  return list;
}

template <int D, class T>
void run_others_nearer(const OthersNearerArgs& args) {
  const int dims = static_cast<int>(args.cells.size(2));
  const std::vector<Holder<T>> holders = holders_of<T>(args, dims);
  // The least distance below `best` that one of the holder's boxes promises, or `best`.
  const auto promise = [&](const T* cell, const Holder<T>& h, double best) {
    if (static_cast<double>(least_distance<D>(cell, h.around.data(), dims)) > best) return best;
    for (std::int64_t b = h.begin; b < h.end; ++b)
      best = std::min(best,
                      static_cast<double>(most_distance<D>(cell, args.boxes.data<T>() + b * 2 * dims, dims)));
    return best;
  };
  const auto touches = [&](const T* cell, const Holder<T>& h) {
    for (std::int64_t b = h.begin; b < h.end; ++b)
      if (least_distance<D>(cell, args.boxes.data<T>() + b * 2 * dims, dims) == T(0)) return true;
    return false;
  };
  for (std::int64_t c = 0; c < args.cells.size(0); ++c) {
    const T* cell = args.cells.data<T>() + c * 2 * dims;
    const std::int64_t owner = args.cell_owners.data<std::int64_t>()[c];
    double best = args.limit;
    for (const Holder<T>& h : holders)
      if (h.rank == owner) best = touches(cell, h) ? 0 : promise(cell, h, best);
    auto& nearer = args.nearer.data<std::int64_t>()[c];
    nearer = -1;
    for (const Holder<T>& h : holders) {
      const double theirs = h.rank == owner ? best : promise(cell, h, best);
      if (theirs < best) {
        best = theirs;
        nearer = h.rank;
      }
    }
  }
}

struct Ring {
  double most = 0;  // no point of the box is farther
  double weight = 0;
};

// The least distance that surely holds k points for any query in the box, or infinity.
template <int D, class T>
double sure_distance(const CellReachArgs& args, const T* cell, std::vector<Ring>& rings) {
  const int dims = args.queries.dims();
  rings.clear();
  for (std::int64_t b = 0; b < args.boxes.size(0); ++b) {
    const T* box = args.boxes.data<T>() + b * 2 * dims;
    rings.push_back({static_cast<double>(most_distance<D>(cell, box, dims)), args.weights.data<double>()[b]});
  }
  std::sort(rings.begin(), rings.end(), [](const Ring& a, const Ring& b) { return a.most < b.most; });
  double held = 0;
  for (const Ring& ring : rings) {
    held += ring.weight;
    if (held >= static_cast<double>(args.distances.size(1))) return ring.most;
  }
  return std::numeric_limits<double>::infinity();
}

template <int D, class T>
void run_cell_reach(const CellReachArgs& args) {
  const std::int64_t cells = args.reach.numel();
  const std::int64_t k = args.distances.size(1);
  const int dims = args.queries.dims();
  std::vector<Ring> rings;
  for (std::int64_t c = 0; c < cells; ++c) {
    const std::int64_t node = cells + c;
    double found = 0;
    const TreeRange r = range_of(args.queries.size(), node);
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const std::int64_t q = args.queries.order.data<std::int64_t>()[i];
      const bool full = args.counts.data<std::int64_t>()[q] == k;
      const auto bound = static_cast<double>(args.bounds.data<T>()[q]);
      const double last = full ? static_cast<double>(args.distances.data<T>()[q * k + k - 1]) : bound;
      found = std::max(found, std::min(last, bound));
    }
    const T* cell = args.queries.boxes.data<T>() + (node - 1) * 2 * dims;
    const double sure = sure_distance<D>(args, cell, rings);
    args.reach.data<double>()[c] = std::min({found, sure, args.limit});
  }
}

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

void touching_weight(const TouchingWeightArgs& args) {
  dispatch_coordinates(args.cells.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(static_cast<int>(args.cells.size(2)),
                  [&](auto d) { *args.weight.data<double>() = sum_touching<d.value, T>(args); });
  });
}

void others_nearer(const OthersNearerArgs& args) {
  dispatch_coordinates(args.cells.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(static_cast<int>(args.cells.size(2)), [&](auto d) { run_others_nearer<d.value, T>(args); });
  });
}

void cell_reach(const CellReachArgs& args) {
  dispatch_coordinates(args.queries.coords.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.queries.dims(), [&](auto d) { run_cell_reach<d.value, T>(args); });
  });
}

}  // namespace tessera::cpu::points
