// What boxes promise of the points in them.
#include <algorithm>
#include <vector>

#include "ops/points/geometry.h"
#include "ops/points/search.h"

namespace tessera::cpu::points {
namespace {

// How many points of one box the queries that touch it are likely to need.
template <int D, class T>
class Expectation {
 public:
  explicit Expectation(const ExpectedRowsArgs& args) : args_(args), dims_(args.queries.dims()) {}

  double all() const {
    double sum = 0;
    for (std::int64_t b = 0; b < args_.boxes.size(0); ++b) {
      const T* box = args_.boxes.data<T>() + b * 2 * dims_;
      const double weight = args_.weights.data<double>()[b];
      sum += std::min(weight, static_cast<double>(touching(1, box)) * per_query(box, weight));
    }
    return sum;
  }

 private:
  std::int64_t touching(std::int64_t node, const T* box) const {
    const T* cell = args_.queries.boxes.data<T>() + (node - 1) * 2 * dims_;
    if (least_distance<D>(cell, box, dims_) > T(0)) return 0;
    const TreeRange r = range_of(args_.queries.size(), node);
    if (node >= std::int64_t{1} << static_cast<unsigned>(args_.queries.levels)) return r.end - r.begin;
    return touching(2 * node, box) + touching(2 * node + 1, box);
  }
  // At most as many as lie in a cube of twice the radius.
  double per_query(const T* box, double weight) const {
    double share = 1;
    for (int d = 0; d < dims_; ++d) {
      const double width = static_cast<double>(box[dims_ + d]) - static_cast<double>(box[d]);
      if (width > 2 * args_.radius) share *= 2 * args_.radius / width;
    }
    return std::min(args_.per_query, weight * share);
  }
  const ExpectedRowsArgs& args_;
  int dims_;
};

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
double sure_distance(const QueryReachArgs& args, const T* cell, std::vector<Ring>& rings) {
  const int dims = args.queries.dims();
  rings.clear();
  for (std::int64_t b = 0; b < args.boxes.size(0); ++b) {
    const T* box = args.boxes.data<T>() + b * 2 * dims;
    rings.push_back({static_cast<double>(most_distance<D>(cell, box, dims)), args.weights.data<double>()[b]});
  }
  const auto farther = [](const Ring& a, const Ring& b) { return a.most > b.most; };
  std::make_heap(rings.begin(), rings.end(), farther);
  double held = 0;
  for (auto end = rings.end(); end != rings.begin();) {
    held += rings.front().weight;
    if (held >= static_cast<double>(args.distances.size(1))) return rings.front().most;
    std::pop_heap(rings.begin(), end--, farther);
  }
  return std::numeric_limits<double>::infinity();
}

template <int D, class T>
class QueryReach {
 public:
  explicit QueryReach(const QueryReachArgs& args)
      : args_(args), k_(args.distances.size(1)), leaves_((args.reach.numel() + 1) / 2) {}

  void run() {
    const std::int64_t cells = std::int64_t{1} << static_cast<unsigned>(args_.level);
    std::vector<Ring> rings;
    for (std::int64_t node = cells; node < 2 * cells; ++node) {
      const T* cell = args_.queries.boxes.data<T>() + (node - 1) * 2 * args_.queries.dims();
      visit(node, std::min(args_.limit, sure_distance<D>(args_, cell, rings)));
    }
    for (std::int64_t node = cells - 1; node > 0; --node) join(node);
  }

 private:
  double& reach(std::int64_t node) const { return args_.reach.data<double>()[node - 1]; }
  void join(std::int64_t node) const { reach(node) = std::max(reach(2 * node), reach(2 * node + 1)); }
  void visit(std::int64_t node, double limit) const {
    if (node < leaves_) {
      visit(2 * node, limit);
      visit(2 * node + 1, limit);
      join(node);
      return;
    }
    double found = 0;
    const TreeRange r = range_of(args_.queries.size(), node);
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const std::int64_t q = args_.queries.order.data<std::int64_t>()[i];
      const bool full = args_.counts.data<std::int64_t>()[q] == k_;
      const auto bound = static_cast<double>(args_.bounds.data<T>()[q]);
      const double last = full ? static_cast<double>(args_.distances.data<T>()[q * k_ + k_ - 1]) : bound;
      found = std::max(found, std::min(last, bound));
    }
    reach(node) = std::min(found, limit);
  }
  const QueryReachArgs& args_;
  std::int64_t k_;
  std::int64_t leaves_;
};

}  // namespace

void expected_rows(const ExpectedRowsArgs& args) {
  *args.rows.data<double>() = 0;
  if (args.queries.empty() || args.boxes.size(0) == 0) return;
  dispatch_coordinates(args.boxes.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.queries.dims(),
                  [&](auto d) { *args.rows.data<double>() = Expectation<d.value, T>(args).all(); });
  });
}

void others_nearer(const OthersNearerArgs& args) {
  dispatch_coordinates(args.cells.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(static_cast<int>(args.cells.size(2)), [&](auto d) { run_others_nearer<d.value, T>(args); });
  });
}

void query_reach(const QueryReachArgs& args) {
  dispatch_coordinates(args.queries.coords.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.queries.dims(), [&](auto d) { QueryReach<d.value, T>(args).run(); });
  });
}

}  // namespace tessera::cpu::points
