#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/points/geometry.h"
#include "ops/points/tree.h"

namespace tessera::cpu::points {
namespace {

template <class T>
struct Item {
  T key;
  std::int64_t id;
  std::int64_t row;
  bool operator<(const Item& o) const { return key < o.key || (key == o.key && id < o.id); }
};

template <class T>
class Builder {
 public:
  explicit Builder(const BuildTreeArgs& args)
      : args_(args), n_(args.tree.size()), dims_(args.tree.dims()), x_(args.points.data<T>()) {
    items_.resize(static_cast<std::size_t>(n_));
    for (std::int64_t i = 0; i < n_; ++i)
      items_[static_cast<std::size_t>(i)] = {T(), args.ids.data<std::int64_t>()[i], i};
  }

  void run() {
    for (int level = 0; level < args_.tree.levels; ++level) {
      const std::int64_t first = std::int64_t{1} << static_cast<unsigned>(level);
      parallel_for(first, threads(), [&](std::int64_t j) { split(first + j); });
    }
    const std::int64_t leaves = std::int64_t{1} << static_cast<unsigned>(args_.tree.levels);
    parallel_for(leaves, threads(), [&](std::int64_t j) { store_leaf(leaves + j); });
    for (std::int64_t node = leaves - 1; node > 0; --node) join_children(node);
  }

 private:
  int threads() const { return threads_for(static_cast<double>(n_ * dims_) * 4); }
  T at(const Item<T>& item, int d) const { return x_[item.row * dims_ + d]; }
  T* box(std::int64_t node) const { return args_.tree.boxes.data<T>() + (node - 1) * 2 * dims_; }
  std::int64_t& first_id(std::int64_t node) const {
    return args_.tree.first_ids.data<std::int64_t>()[node - 1];
  }

  int widest(TreeRange r) const {
    int best = 0;
    T width = -1;
    for (int d = 0; d < dims_; ++d) {
      T lo = at(items_[static_cast<std::size_t>(r.begin)], d);
      T hi = lo;
      for (std::int64_t i = r.begin + 1; i < r.end; ++i) {
        const T v = at(items_[static_cast<std::size_t>(i)], d);
        lo = std::min(lo, v);
        hi = std::max(hi, v);
      }
      if (hi - lo > width) {
        width = hi - lo;
        best = d;
      }
    }
    return best;
  }

  void split(std::int64_t node) {
    const TreeRange r = range_of(n_, node);
    if (r.end - r.begin < 2) return;
    const int d = widest(r);
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      Item<T>& item = items_[static_cast<std::size_t>(i)];
      item.key = at(item, d);
    }
    std::nth_element(items_.begin() + r.begin, items_.begin() + range_of(n_, 2 * node).end,
                     items_.begin() + r.end);
  }

  void store_leaf(std::int64_t node) {
    const TreeRange r = range_of(n_, node);
    T* lo = box(node);
    T* hi = lo + dims_;
    std::fill(lo, hi, std::numeric_limits<T>::infinity());
    std::fill(hi, hi + dims_, -std::numeric_limits<T>::infinity());
    first_id(node) = INT64_MAX;
    for (std::int64_t i = r.begin; i < r.end; ++i) {
      const Item<T>& item = items_[static_cast<std::size_t>(i)];
      args_.tree.ids.data<std::int64_t>()[i] = item.id;
      args_.tree.order.data<std::int64_t>()[i] = item.row;
      first_id(node) = std::min(first_id(node), item.id);
      for (int d = 0; d < dims_; ++d) {
        const T v = at(item, d);
        args_.tree.coords.data<T>()[d * n_ + i] = v;
        lo[d] = std::min(lo[d], v);
        hi[d] = std::max(hi[d], v);
      }
    }
  }

  void join_children(std::int64_t node) {
    const T* a = box(2 * node);
    const T* b = box(2 * node + 1);
    T* out = box(node);
    for (int d = 0; d < dims_; ++d) {
      out[d] = std::min(a[d], b[d]);
      out[dims_ + d] = std::max(a[dims_ + d], b[dims_ + d]);
    }
    first_id(node) = std::min(first_id(2 * node), first_id(2 * node + 1));
  }

  const BuildTreeArgs& args_;
  std::int64_t n_;
  int dims_;
  const T* x_;
  std::vector<Item<T>> items_;
};

}  // namespace

int tree_levels(std::int64_t n) {
  int levels = 0;
  while (ceil_div(n, std::int64_t{1} << static_cast<unsigned>(levels)) > kLeafPoints) ++levels;
  return levels;
}

void build_tree(const BuildTreeArgs& args) {
  dispatch_coordinates(args.points.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Builder<T>(args).run();
  });
}

void first_unordered(const Array& out, const Array& x, const Array& ids) {
  std::int64_t first = INT64_MAX;
  dispatch_coordinates(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* v = x.data<T>();
    for (std::int64_t i = 0; i < x.numel(); ++i)
      if (!std::isfinite(v[i])) first = std::min(first, ids.data<std::int64_t>()[i / x.size(1)]);
  });
  *out.data<std::int64_t>() = first == INT64_MAX ? -1 : first;
}

}  // namespace tessera::cpu::points
