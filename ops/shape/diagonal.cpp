// diagonal: element i of the result is element (i, i + offset) of two dims, and stays with the rank that
// holds it: the result is cut by the axes of both.
#include "mesh/mesh_state.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// Diagonal elements [lo, hi) whose row lies in an interval of one dim and whose column in one of the other;
// `row`, `column` are the local positions of the first of them.
struct Run {
  Interval of;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

struct DiagonalMap : ElementMap {
  int rows = 0;
  int columns = 1;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;

  static const OpDef& op() {
    static const OpDef def{"diagonal"};
    return def;
  }
  static const OpDef& adjoint_op() {
    static const OpDef def{"diagonal_backward"};
    return def;
  }
  Hash hash() const {
    return Hash().add(std::int64_t{rows}).add(std::int64_t{columns}).add(first_row).add(first_column);
  }
  std::int64_t length() const { return to.back(); }

  std::vector<Run> runs(const Intervals& own_rows, const Intervals& own_columns) const {
    std::vector<Run> list;
    std::int64_t row = 0;
    for (Interval r : own_rows) {
      std::int64_t column = 0;
      for (Interval c : own_columns) {
        const Interval both =
            intersect({r.lo - first_row, r.hi - first_row}, {c.lo - first_column, c.hi - first_column});
        const Interval of = intersect(both, {0, length()});
        if (!of.empty())
          list.push_back({of, row + of.lo + first_row - r.lo, column + of.lo + first_column - c.lo});
        column += c.length();
      }
      row += r.length();
    }
    return list;
  }
  std::vector<Run> local_runs(const ShardSpec* x) const {
    if (x == nullptr) return runs({{0, from[rows]}}, {{0, from[columns]}});
    return runs(x->intervals(rows), x->intervals(columns));
  }

  SpecPtr placed(const ShardSpec& x) const;
  // The run's elements as a view of the local array, the diagonal last.
  Array view(const Array& x, const Run& run) const {
    Dims sizes;
    Dims strides;
    for (int d = 0; d < x.dim(); ++d) {
      if (d == rows || d == columns) continue;
      sizes.push_back(x.size(d));
      strides.push_back(x.stride(d));
    }
    sizes.push_back(run.of.length());
    strides.push_back(x.stride(rows) + x.stride(columns));
    return x.as_strided(sizes, strides,
                        x.offset() + run.row * x.stride(rows) + run.column * x.stride(columns));
  }
  Array apply(const Array& x, const MapPlaces& p) const {
    const std::vector<Run> list = local_runs(p.from);
    if (list.size() == 1) return view(x, list[0]);
    const Array out = Array::empty(p.to != nullptr ? p.to->local_sizes() : to, x.dtype(), x.device());
    std::int64_t at = 0;
    for (const Run& run : list) {
      copy_strided(out.slice(out.dim() - 1, at, run.of.length()), view(x, run));
      at += run.of.length();
    }
    return out;
  }
  Array adjoint(const Array& dy, const MapPlaces& p) const {
    const Array out = Array::zeros(p.from != nullptr ? p.from->local_sizes() : from, dy.dtype(), dy.device());
    std::int64_t at = 0;
    for (const Run& run : local_runs(p.from)) {
      copy_strided(view(out, run), dy.slice(dy.dim() - 1, at, run.of.length()));
      at += run.of.length();
    }
    return out;
  }
};

SpecPtr DiagonalMap::placed(const ShardSpec& x) const {
  DimCut diagonal;
  for (int d : {rows, columns})
    if (x.cut(d)) diagonal.axes.insert(diagonal.axes.end(), x.cut(d)->axes.begin(), x.cut(d)->axes.end());
  const auto parts_of = [&](int d) {
    return x.cut(d) ? x.cut(d)->parts : std::vector<Intervals>{{{0, from[d]}}};
  };
  for (const Intervals& own_rows : parts_of(rows))
    for (const Intervals& own_columns : parts_of(columns)) {
      Intervals part;
      for (const Run& run : runs(own_rows, own_columns)) part.push_back(run.of);
      diagonal.parts.push_back(std::move(part));
    }
  std::vector<int> moved(static_cast<std::size_t>(x.dim()), to.size() - 1);  // dims of x in the result
  std::vector<std::optional<DimCut>> cuts;
  for (int d = 0; d < x.dim(); ++d) {
    if (d == rows || d == columns) continue;
    moved[static_cast<std::size_t>(d)] = static_cast<int>(cuts.size());
    cuts.push_back(x.cut(d) ? std::optional<DimCut>(*x.cut(d)) : std::nullopt);
  }
  cuts.push_back(diagonal.axes.empty() ? std::nullopt : std::optional<DimCut>(diagonal));
  Placements placements = x.placements();
  for (Placement& p : placements)
    if (p.is_shard()) p = Shard(moved[static_cast<std::size_t>(p.dim)]);
  return ShardSpec::make(x.mesh(), placements, to, std::move(cuts));
}

}  // namespace

Tensor diagonal(const Tensor& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  TS_CHECK(x.defined(), "diagonal", "the input is undefined");
  TS_CHECK(x.dim() >= 2, "diagonal", "needs a tensor of two or more dims, given {}", x.sizes().str());
  const int a = wrap_dim("diagonal", dim1, x.dim());
  const int b = wrap_dim("diagonal", dim2, x.dim());
  TS_CHECK(a != b, "diagonal", "the two dims must differ, given {} and {}", dim1, dim2);
  const std::int64_t first_row = offset < 0 ? -offset : 0;
  const std::int64_t first_column = offset > 0 ? offset : 0;
  Dims sizes;
  for (int d = 0; d < x.dim(); ++d)
    if (d != a && d != b) sizes.push_back(x.sizes()[d]);
  sizes.push_back(std::max<std::int64_t>(0, std::min(x.sizes()[a] - first_row, x.sizes()[b] - first_column)));
  return apply_map(DiagonalMap{{x.sizes(), sizes}, a, b, first_row, first_column}, x);
}

}  // namespace tessera
