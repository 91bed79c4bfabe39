// The tree that searches walk: a balanced k-d tree over the rows of a matrix, in plain arrays.
//
// Level l has 2^l nodes. Node j of level l holds the sorted positions [n·j / 2^l, n·(j + 1) / 2^l), so no
// range is stored, and points that are equal, collinear or crowded into a corner split as evenly as any
// others. A node is split where its box is widest, by (coordinate, id): equal points end up apart by their
// ids, which lets a search that is looking for the lowest ids among ties leave out all others.
// Nodes are numbered as in a heap: 1 is the root, 2i and 2i + 1 are the children of i.
#pragma once
#include <bit>
#include <cstdint>

#include "runtime/array.h"

namespace tessera::cpu::points {

constexpr std::int64_t kLeafPoints = 32;

struct PointTree {
  Array coords;  // [dims, n] f32 or f64, sorted
  Array ids;     // [n] i64, sorted alike
  Array order;   // [n] i64: the row that each sorted position was
  Array
      boxes;  // [nodes, 2, dims]: of the points in each node, tight; [infinity, -infinity] if there are none
  Array first_ids;  // [nodes] i64: the lowest id in each node
  int levels = 0;   // the leaves' level

  int dims() const { return static_cast<int>(coords.size(0)); }
  std::int64_t size() const { return coords.size(1); }
  bool empty() const { return size() == 0; }
};

// The leaves' level in a tree over n points.
int tree_levels(std::int64_t n);
inline std::int64_t tree_nodes(int levels) { return (std::int64_t{2} << static_cast<unsigned>(levels)) - 1; }

// The sorted positions of a node.
struct TreeRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
inline TreeRange range_of(std::int64_t n, std::int64_t node) {
  const int level = std::bit_width(static_cast<std::uint64_t>(node)) - 1;
  const std::int64_t j = node - (std::int64_t{1} << static_cast<unsigned>(level));
  return {(n * j) >> static_cast<unsigned>(level), (n * (j + 1)) >> static_cast<unsigned>(level)};
}

// points [n, dims], contiguous and finite; ids [n], all different. The tree's arrays are overwritten.
struct BuildTreeArgs {
  PointTree tree;
  Array points;
  Array ids;
};
void build_tree(const BuildTreeArgs& args);

// out [1] i64: the lowest id among the rows of x [n, dims] that have a NaN or an infinity, or -1.
void first_unordered(const Array& out, const Array& x, const Array& ids);

}  // namespace tessera::cpu::points
