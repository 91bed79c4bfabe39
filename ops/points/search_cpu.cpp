#include "ops/points/search.h"

#include <algorithm>
#include <array>

#include "ops/cpu/parallel.h"
#include "ops/cpu/workspace.h"
#include "ops/points/geometry.h"

namespace tessera::cpu::points {
namespace {

constexpr std::int64_t kQueriesPerPiece = 64;
// Steps down a tree of 2^63 points, and one.
constexpr int kDeepest = 64;

template <class T>
struct Candidate {
  T distance;
  std::int64_t id;
  bool operator<(const Candidate& o) const {
    return distance < o.distance || (distance == o.distance && id < o.id);
  }
};

// The k best of what was offered: a heap with the worst on top.
template <class T>
class Best {
 public:
  Best(Candidate<T>* heap, std::int64_t k, T limit) : heap_(heap), k_(k) { limit_to(limit); }

  void start(const T* distances, const std::int64_t* ids, std::int64_t n, T limit) {
    n_ = n;
    limit_to(limit);
    for (std::int64_t i = 0; i < n; ++i) heap_[i] = {distances[i], ids[i]};
    if (full()) fill();
  }
  // Whether points no nearer than `least`, with no id below `first_id`, may be among the best.
  bool wants(T least, std::int64_t first_id) const {
    return least < limit_ || (least == limit_ && (!full() || first_id < heap_[0].id));
  }
  T square_limit() const { return square_limit_; }
  void offer(T distance, std::int64_t id) {
    if (!wants(distance, id)) return;
    if (full()) {
      std::pop_heap(heap_, heap_ + n_);
      heap_[n_ - 1] = {distance, id};
      std::push_heap(heap_, heap_ + n_);
      limit_to(heap_[0].distance);
    } else {
      heap_[n_++] = {distance, id};
      if (full()) fill();
    }
  }
  std::int64_t finish(T* distances, std::int64_t* ids) {
    std::sort(heap_, heap_ + n_);
    for (std::int64_t i = 0; i < n_; ++i) {
      distances[i] = heap_[i].distance;
      ids[i] = heap_[i].id;
    }
    return n_;
  }

 private:
  bool full() const { return n_ == k_; }
  void fill() {
    std::make_heap(heap_, heap_ + n_);
    limit_to(heap_[0].distance);
  }
  void limit_to(T limit) {
    limit_ = limit;
    square_limit_ = square_bound(limit);
  }
  Candidate<T>* heap_;
  std::int64_t k_;
  std::int64_t n_ = 0;
  T limit_ = 0;
  T square_limit_ = 0;
};

// The tree as typed pointers.
template <int D, class T>
class Tree {
 public:
  explicit Tree(const PointTree& t)
      : coords_(t.coords.data<T>()),
        ids_(t.ids.data<std::int64_t>()),
        order_(t.order.data<std::int64_t>()),
        boxes_(t.boxes.data<T>()),
        first_ids_(t.first_ids.data<std::int64_t>()),
        n_(t.size()),
        leaves_(std::int64_t{1} << static_cast<unsigned>(t.levels)),
        dims_(t.dims()) {}

  int dims() const { return D > 0 ? D : dims_; }
  bool leaf(std::int64_t node) const { return node >= leaves_; }
  TreeRange range(std::int64_t node) const { return range_of(n_, node); }
  const T* box(std::int64_t node) const { return boxes_ + (node - 1) * 2 * dims(); }
  std::int64_t first_id(std::int64_t node) const { return first_ids_[node - 1]; }
  std::int64_t id(std::int64_t at) const { return ids_[at]; }
  std::int64_t row(std::int64_t at) const { return order_[at]; }
  T coordinate(std::int64_t at, int d) const { return coords_[d * n_ + at]; }
  T least(const T* point, std::int64_t node) const {
    return least_distance<D>(point, point, box(node), box(node) + dims(), dims());
  }

  // Squares of the distances of a leaf's points; the sum is in the order of the dims (geometry.h).
  void squares(const T* point, TreeRange r, T* out) const {
    const std::int64_t n = r.end - r.begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = 0;
    for (int d = 0; d < dims(); ++d) {
      const T p = point[d];
      const T* c = coords_ + d * n_ + r.begin;
      for (std::int64_t i = 0; i < n; ++i) {
        const T apart = p - c[i];
        out[i] = out[i] + apart * apart;
      }
    }
  }

 private:
  const T* coords_;
  const std::int64_t* ids_;
  const std::int64_t* order_;
  const T* boxes_;
  const std::int64_t* first_ids_;
  std::int64_t n_;
  std::int64_t leaves_;
  int dims_;
};

// Down to the nearer child first (among equally near ones, to the lower ids), back to the other one later.
template <int D, class T>
void walk_nearest(const Tree<D, T>& tree, const T* point, Best<T>& best) {
  struct Later {
    std::int64_t node;
    T least;
  };
  std::array<Later, kDeepest> stack;
  std::array<T, kLeafPoints> squares;
  int waiting = 0;
  stack[static_cast<std::size_t>(waiting++)] = {1, tree.least(point, 1)};
  while (waiting > 0) {
    Later at = stack[static_cast<std::size_t>(--waiting)];
    while (best.wants(at.least, tree.first_id(at.node)) && !tree.leaf(at.node)) {
      Later a{2 * at.node, tree.least(point, 2 * at.node)};
      Later b{2 * at.node + 1, tree.least(point, 2 * at.node + 1)};
      if (b.least < a.least || (b.least == a.least && tree.first_id(b.node) < tree.first_id(a.node)))
        std::swap(a, b);
      if (best.wants(b.least, tree.first_id(b.node))) stack[static_cast<std::size_t>(waiting++)] = b;
      at = a;
    }
    if (!best.wants(at.least, tree.first_id(at.node))) continue;
    const TreeRange r = tree.range(at.node);
    tree.squares(point, r, squares.data());
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const T square = squares[static_cast<std::size_t>(i - r.begin)];
      if (square <= best.square_limit()) best.offer(std::sqrt(square), tree.id(i));
    }
  }
}

template <int D, class T>
void run_nearest(const NearestArgs& args) {
  const Tree<D, T> tree(args.tree);
  const std::int64_t m = args.queries.size(0);
  const std::int64_t k = args.distances.size(1);
  const auto limit = static_cast<T>(args.limit);
  const std::int64_t pieces = ceil_div(m, kQueriesPerPiece);
  const double work = static_cast<double>(m) * static_cast<double>(k + kLeafPoints) * 32;
  parallel_for(pieces, threads_for(work), [&](std::int64_t piece) {
    Best<T> best(Workspace::begin().take<Candidate<T>>(k), k, limit);
    const std::int64_t last = std::min(m, (piece + 1) * kQueriesPerPiece);
    for (std::int64_t i = piece * kQueriesPerPiece; i < last; ++i) {
      const std::int64_t q = args.order.data<std::int64_t>()[i];
      T* distances = args.distances.data<T>() + q * k;
      auto* ids = args.ids.data<std::int64_t>() + q * k;
      auto& count = args.counts.data<std::int64_t>()[q];
      best.start(distances, ids, count, limit);
      walk_nearest(tree, args.queries.data<T>() + q * tree.dims(), best);
      count = best.finish(distances, ids);
    }
  });
}

// f(distance, id) for every point at most `radius` away.
template <int D, class T, class F>
void walk_radius(const Tree<D, T>& tree, const T* point, T radius, const F& f) {
  std::array<std::int64_t, kDeepest> stack;
  std::array<T, kLeafPoints> squares;
  const T square_limit = square_bound(radius);
  int waiting = 0;
  stack[static_cast<std::size_t>(waiting++)] = 1;
  while (waiting > 0) {
    const std::int64_t node = stack[static_cast<std::size_t>(--waiting)];
    if (!(tree.least(point, node) <= radius)) continue;
    if (!tree.leaf(node)) {
      stack[static_cast<std::size_t>(waiting++)] = 2 * node + 1;
      stack[static_cast<std::size_t>(waiting++)] = 2 * node;
      continue;
    }
    const TreeRange r = tree.range(node);
    tree.squares(point, r, squares.data());
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const T square = squares[static_cast<std::size_t>(i - r.begin)];
      if (!(square <= square_limit)) continue;
      const T distance = std::sqrt(square);
      if (distance <= radius) f(distance, tree.id(i));
    }
  }
}

template <int D, class T>
void run_within_radius(const WithinRadiusArgs& args) {
  const Tree<D, T> tree(args.tree);
  const std::int64_t m = args.queries.size(0);
  const auto radius = static_cast<T>(args.radius);
  const bool fill = args.ids.defined();
  const std::int64_t pieces = ceil_div(m, kQueriesPerPiece);
  parallel_for(pieces, threads_for(static_cast<double>(m) * kLeafPoints * 32), [&](std::int64_t piece) {
    const std::int64_t last = std::min(m, (piece + 1) * kQueriesPerPiece);
    for (std::int64_t i = piece * kQueriesPerPiece; i < last; ++i) {
      const std::int64_t q = args.order.data<std::int64_t>()[i];
      const T* point = args.queries.data<T>() + q * tree.dims();
      if (fill) {
        auto& end = args.ends.data<std::int64_t>()[q];
        walk_radius(tree, point, radius, [&](T distance, std::int64_t id) {
          args.distances.data<T>()[end] = distance;
          args.ids.data<std::int64_t>()[end++] = id;
        });
      } else {
        auto& count = args.counts.data<std::int64_t>()[q];
        walk_radius(tree, point, radius, [&](T, std::int64_t) { ++count; });
      }
    }
  });
}

template <class T>
void run_sort_lists(const SortListsArgs& args) {
  const std::int64_t m = args.counts.numel();
  const double work = static_cast<double>(args.ids.numel()) * 32;
  parallel_for(ceil_div(m, kQueriesPerPiece), threads_for(work), [&](std::int64_t piece) {
    const std::int64_t last = std::min(m, (piece + 1) * kQueriesPerPiece);
    for (std::int64_t q = piece * kQueriesPerPiece; q < last; ++q) {
      const std::int64_t n = args.counts.data<std::int64_t>()[q];
      const std::int64_t begin = args.ends.data<std::int64_t>()[q] - n;
      T* distances = args.distances.data<T>() + begin;
      auto* ids = args.ids.data<std::int64_t>() + begin;
      auto* list = Workspace::begin().take<Candidate<T>>(n);
      for (std::int64_t i = 0; i < n; ++i) list[i] = {distances[i], ids[i]};
      std::sort(list, list + n);
      for (std::int64_t i = 0; i < n; ++i) {
        distances[i] = list[i].distance;
        ids[i] = list[i].id;
      }
    }
  });
}

}  // namespace

void nearest(const NearestArgs& args) {
  if (args.tree.empty()) return;
  dispatch_coordinates(args.queries.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.tree.dims(), [&](auto d) { run_nearest<d.value, T>(args); });
  });
}

void within_radius(const WithinRadiusArgs& args) {
  if (args.tree.empty()) return;
  dispatch_coordinates(args.queries.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    dispatch_dims(args.tree.dims(), [&](auto d) { run_within_radius<d.value, T>(args); });
  });
}

void sort_lists(const SortListsArgs& args) {
  dispatch_coordinates(args.distances.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    run_sort_lists<T>(args);
  });
}

void pad_rows(const Array& distances, const Array& ids, const Array& counts) {
  const std::int64_t k = distances.size(1);
  dispatch_coordinates(distances.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t q = 0; q < distances.size(0); ++q) {
      const std::int64_t n = counts.data<std::int64_t>()[q];
      std::fill(distances.data<T>() + q * k + n, distances.data<T>() + (q + 1) * k,
                std::numeric_limits<T>::infinity());
      std::fill(ids.data<std::int64_t>() + q * k + n, ids.data<std::int64_t>() + (q + 1) * k, -1);
    }
  });
}

}  // namespace tessera::cpu::points
