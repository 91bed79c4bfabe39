#include "ops/attention/attention_plan.h"

#include <array>

#include "ops/reduce/groups.h"

namespace tessera {
namespace {

enum class Cut : std::uint8_t { None, Batch, Heads, Length };
constexpr std::array<Cut, 3> kKinds{Cut::Batch, Cut::Heads, Cut::Length};  // by dim

bool shards(const SpecPtr& s, int axis, int dim) {
  return s && s->placement(axis).is_shard() && s->placement(axis).dim == dim;
}

class Planner {
 public:
  Planner(const std::vector<SpecPtr>& in, const AttentionShape& shape)
      : in_(in), shape_(shape), mesh_(in[0]->mesh()) {
    for (int a = 0; a < mesh_.ndim(); ++a) {
      choice_.push_back(choose(a));
      const unsigned bit = 1U << static_cast<unsigned>(a);
      if (choice_.back() == Cut::Length) {
        length_.push_back(a);
        if (travel(a)) {
          ring_.push_back(a);
          plan_.ring |= bit;
        } else {
          plan_.key_sums |= bit;
        }
      }
    }
  }

  AttentionPlan make() {
    const std::optional<DimCut> rows = row_cut();
    const std::optional<DimCut> keys = key_cut();
    const std::optional<DimCut> batch = shared_cut(Cut::Batch, 0);
    const std::optional<DimCut> key_heads = head_cut();
    const std::optional<DimCut> heads = scaled(key_heads, group());
    plan_.q = spec(shape_.q, {batch, heads, rows, std::nullopt});
    plan_.k = spec(shape_.k, {batch, key_heads, keys, std::nullopt});
    plan_.v = spec(shape_.v, {batch, key_heads, keys, std::nullopt});
    plan_.out = spec(shape_.out(), {batch, heads, rows, std::nullopt});
    plan_.lse = spec(shape_.lse(), {batch, heads, rows});
    if (!shape_.mask.empty()) {
      auto where_full = [&](int d, const std::optional<DimCut>& cut) {
        return masks_each(d) ? cut : std::nullopt;
      };
      plan_.mask =
          spec(shape_.mask, {where_full(0, batch), where_full(1, heads), where_full(2, rows), std::nullopt});
    }
    plan_.ranks = group_ranks(*plan_.k, plan_.ring);
    plan_.place = static_cast<int>(std::find(plan_.ranks.begin(), plan_.ranks.end(), mesh_.rank()) -
                                   plan_.ranks.begin());
    return plan_;
  }

 private:
  // The mask has one line for each index of the scores' dim, not one for all.
  bool masks_each(int dim) const { return shape_.mask[dim] == shape_.scores()[dim]; }

  static bool cut_at(const SpecPtr& s, int axis) { return s && s->placement(axis).is_shard(); }
  // Keys and values that are cut are never made whole beside queries that are cut: they travel.
  bool travel(int axis) const { return cut_at(in_[1], axis) || cut_at(in_[2], axis); }

  // What the batch, heads or length of q, k and v are cut by, else what the mask alone is cut by, which costs
  // nothing to cut alike. Where some input is cut otherwise, what moves the fewest elements.
  Cut choose(int axis) const {
    std::vector<Cut> kinds;
    for (std::size_t i = 0; i < 4; ++i)
      for (int d = 0; d < 3; ++d)
        if (shards(in_[i], axis, d) && (i < 3 || (kinds.empty() && masks_each(d))))
          kinds.push_back(kKinds[static_cast<std::size_t>(d)]);
    const bool any = std::any_of(in_.begin(), in_.end(), [&](const SpecPtr& s) { return cut_at(s, axis); });
    if (!any || (!kinds.empty() && misfit(kinds[0], axis) == 0)) return any ? kinds[0] : Cut::None;
    std::int64_t enough = mesh_.size(axis);
    if (kinds.empty())  // as many ranks at work as can be
      enough = std::min(enough, std::max({extent(Cut::Batch), extent(Cut::Heads), extent(Cut::Length)}));
    for (const Cut kind : kKinds)
      if (extent(kind) >= enough) kinds.push_back(kind);
    return *std::min_element(kinds.begin(), kinds.end(),
                             [&](Cut a, Cut b) { return cost(a, axis) < cost(b, axis); });
  }

  std::int64_t extent(Cut kind) const {
    return kind == Cut::Heads ? shape_.k[1] : shape_.q[kind == Cut::Batch ? 0 : 2];
  }

  // Elements of cut inputs that move, over all ranks, before the work begins.
  double misfit(Cut kind, int axis) const {
    const int dim = kind == Cut::Batch ? 0 : kind == Cut::Heads ? 1 : 2;
    const double others = mesh_.size(axis) - 1;
    double moved = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      if (!cut_at(in_[i], axis)) continue;
      const double n = static_cast<double>(numel_of(in_[i]->sizes()));
      if (i == 3 && !masks_each(dim)) {
        moved += n * others;  // made whole
      } else if (!shards(in_[i], axis, dim)) {
        moved += n * others / mesh_.size(axis);
      }
    }
    return moved;
  }

  double cost(Cut kind, int axis) const {
    const bool ring = kind == Cut::Length && travel(axis);
    const auto keys = static_cast<double>(numel_of(shape_.k) + numel_of(shape_.v));
    return misfit(kind, axis) + (ring ? keys * (mesh_.size(axis) - 1) : 0);
  }

  std::vector<int> axes_of(Cut cut) const {
    std::vector<int> axes;
    for (std::size_t a = 0; a < choice_.size(); ++a)
      if (choice_[a] == cut) axes.push_back(static_cast<int>(a));
    return axes;
  }

  // An input's own cut of `dim` if exactly `axes` make it.
  std::optional<DimCut> own(std::size_t input, int dim, const std::vector<int>& axes) const {
    const CutPtr& cut = in_[input]->cut(dim);
    if (!cut) return std::nullopt;
    std::vector<int> sorted = cut->axes;
    std::sort(sorted.begin(), sorted.end());
    return sorted == axes ? std::optional<DimCut>(*cut) : std::nullopt;
  }

  std::optional<DimCut> cut_of_mask(int dim, const std::vector<int>& axes) const {
    return in_[3] && masks_each(dim) ? own(3, dim, axes) : std::nullopt;
  }

  DimCut even(std::int64_t n, const std::vector<int>& axes) const {
    int parts = 1;
    for (int a : axes) parts *= mesh_.size(a);
    DimCut cut;
    cut.axes = axes;
    for (Interval i : default_partition(n, parts)) cut.parts.push_back({i});
    return cut;
  }

  std::optional<DimCut> shared_cut(Cut kind, int dim) const {
    const std::vector<int> axes = axes_of(kind);
    if (axes.empty()) return std::nullopt;
    for (std::size_t i = 0; i < 3; ++i)
      if (auto cut = own(i, dim, axes)) return cut;
    if (auto cut = cut_of_mask(dim, axes)) return cut;
    return even(shape_.q[dim], axes);
  }

  // Query heads per key head.
  std::int64_t group() const { return shape_.k[1] > 0 ? shape_.q[1] / shape_.k[1] : 1; }

  static std::optional<DimCut> scaled(std::optional<DimCut> cut, std::int64_t factor) {
    if (!cut) return cut;
    for (Intervals& part : cut->parts)
      for (Interval& i : part) i = {i.lo * factor, i.hi * factor};
    return cut;
  }

  // The key heads of query heads that are cut as given; none where that parts a key head's group.
  std::optional<DimCut> key_heads_of(std::optional<DimCut> cut) const {
    if (!cut) return std::nullopt;
    for (Intervals& part : cut->parts)
      for (Interval& i : part) {
        if (i.lo % group() != 0 || i.hi % group() != 0) return std::nullopt;
        i = {i.lo / group(), i.hi / group()};
      }
    return cut;
  }

  // Of the key heads; the query heads follow, whole groups with their key head.
  std::optional<DimCut> head_cut() const {
    const std::vector<int> axes = axes_of(Cut::Heads);
    if (axes.empty()) return std::nullopt;
    if (auto cut = key_heads_of(own(0, 1, axes))) return cut;
    for (std::size_t i = 1; i < 3; ++i)
      if (auto cut = own(i, 1, axes)) return cut;
    if (auto cut = key_heads_of(cut_of_mask(1, axes))) return cut;
    return even(shape_.k[1], axes);
  }

  std::optional<DimCut> row_cut() const {
    if (length_.empty()) return std::nullopt;
    if (auto cut = own(0, 2, length_)) return cut;
    if (auto cut = cut_of_mask(2, length_)) return cut;
    if (shape_.q[2] == shape_.k[2])
      if (auto cut = own(1, 2, length_)) return cut;
    return even(shape_.q[2], length_);
  }

  std::optional<DimCut> key_cut() const {
    if (ring_.empty()) return std::nullopt;
    if (auto cut = own(1, 2, ring_)) return cut;
    if (auto cut = own(2, 2, ring_)) return cut;
    return even(shape_.k[2], ring_);
  }

  SpecPtr spec(const Dims& sizes, std::vector<std::optional<DimCut>> cuts) const {
    Placements p(choice_.size());
    for (std::size_t d = 0; d < cuts.size(); ++d)
      if (cuts[d])
        for (int a : cuts[d]->axes) p[static_cast<std::size_t>(a)] = Shard(static_cast<int>(d));
    return ShardSpec::make(mesh_, p, sizes, std::move(cuts));
  }

  const std::vector<SpecPtr>& in_;
  const AttentionShape& shape_;
  DeviceMesh mesh_;
  std::vector<Cut> choice_;
  std::vector<int> length_;
  std::vector<int> ring_;
  AttentionPlan plan_;
};

}  // namespace

AttentionPlan plan_attention(const std::vector<SpecPtr>& inputs, const AttentionShape& shape) {
  return Planner(inputs, shape).make();
}

std::vector<std::int64_t> positions_of(const Intervals& intervals) {
  std::vector<std::int64_t> list;
  for (Interval i : intervals)
    for (std::int64_t p = i.lo; p < i.hi; ++p) list.push_back(p);
  return list;
}

}  // namespace tessera
