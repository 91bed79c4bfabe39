// Dims of the old and the new shape fall into groups with equal products. Inside a group every rank's part is
// a list of flat intervals; they are the cut of a merged dim as they stand, and a cut of split dims if they
// are a product of intervals of those. Otherwise the group's first dim is cut at multiples that both shapes
// share, or, where they share none, elements move while the group is one dim.
#include "ops/shape/reshape_plan.h"

#include <numeric>

#include "mesh/mesh_state.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxIntervals = 1U << 14U;  // more per rank, and the tensor is re-cut instead

// Dims [in_lo, in_hi) of the input make dims [out_lo, out_hi) of the output; dims of size 1 are left out.
struct Group {
  std::vector<int> in;
  std::vector<int> out;
};

std::vector<Group> group_dims(const Dims& in, const Dims& out) {
  std::vector<int> a;
  std::vector<int> b;
  for (int d = 0; d < in.size(); ++d)
    if (in[d] != 1) a.push_back(d);
  for (int d = 0; d < out.size(); ++d)
    if (out[d] != 1) b.push_back(d);
  std::vector<Group> groups;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    Group g{{a[i]}, {b[j]}};
    std::int64_t pa = in[a[i++]];
    std::int64_t pb = out[b[j++]];
    while (pa != pb) {
      if (pa < pb) {
        pa *= in[a[i]];
        g.in.push_back(a[i++]);
      } else {
        pb *= out[b[j]];
        g.out.push_back(b[j++]);
      }
    }
    groups.push_back(std::move(g));
  }
  return groups;
}

void push(Intervals& list, Interval i) {
  if (i.empty()) return;
  if (!list.empty() && list.back().hi == i.lo) {
    list.back().hi = i.hi;
  } else {
    list.push_back(i);
  }
}

// The product of interval lists over dims of these sizes as flat intervals in row-major order; empty
// optional: too many.
std::optional<Intervals> flatten_product(const std::vector<Intervals>& lists,
                                         const std::vector<std::int64_t>& sizes) {
  Intervals flat{{0, 1}};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool whole = lists[d].size() == 1 && lists[d][0] == Interval{0, sizes[d]};
    Intervals next;
    for (Interval outer : flat) {
      if (whole) {
        push(next, {outer.lo * sizes[d], outer.hi * sizes[d]});
        continue;
      }
      for (std::int64_t o = outer.lo; o < outer.hi; ++o)
        for (Interval i : lists[d]) {
          push(next, {o * sizes[d] + i.lo, o * sizes[d] + i.hi});
          if (next.size() > kMaxIntervals) return std::nullopt;
        }
    }
    flat = std::move(next);
  }
  return flat;
}

// Indices along a dim (size n, `inner` elements each) that flat intervals touch, in the order in which they
// come up first: lists need not rise.
Intervals project(const Intervals& flat, std::int64_t n, std::int64_t inner) {
  std::vector<char> touched(static_cast<std::size_t>(n), 0);
  Intervals list;
  for (Interval i : flat) {
    const std::int64_t first = i.lo / inner;
    const std::int64_t last = (i.hi - 1) / inner;
    if (last - first + 1 >= n) return {{0, n}};
    for (std::int64_t k = first; k <= last; ++k) {
      char& seen = touched[static_cast<std::size_t>(k % n)];
      if (seen == 0) push(list, {k % n, k % n + 1});
      seen = 1;
    }
  }
  return list;
}

// One group's cut as seen from both sides.
struct GroupCut {
  std::vector<int> axes;         // all mesh axes that cut the group, outer dims first
  std::vector<Intervals> parts;  // flat, per joint coordinate
};

std::vector<int> coordinates_of(int joint, const std::vector<int>& axes, const MeshCore& core) {
  std::vector<int> c(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    const int n = core.axes[static_cast<std::size_t>(axes[i])].size;
    c[i] = joint % n;
    joint /= n;
  }
  return c;
}

int joint_of(const std::vector<int>& some, const std::vector<int>& axes, const std::vector<int>& coordinates,
             const MeshCore& core) {
  int joint = 0;
  for (int a : some) {
    const auto at = static_cast<std::size_t>(std::find(axes.begin(), axes.end(), a) - axes.begin());
    joint = joint * core.axes[static_cast<std::size_t>(a)].size + coordinates[at];
  }
  return joint;
}

int product_of(const std::vector<int>& axes, const MeshCore& core) {
  int p = 1;
  for (int a : axes) p *= core.axes[static_cast<std::size_t>(a)].size;
  return p;
}

std::optional<GroupCut> flat_cut(const Group& g, const std::vector<CutPtr>& cuts, const Dims& in,
                                 const MeshCore& core) {
  GroupCut result;
  std::vector<std::int64_t> sizes;
  for (int d : g.in) {
    sizes.push_back(in[d]);
    if (const CutPtr& cut = cuts[static_cast<std::size_t>(d)])
      result.axes.insert(result.axes.end(), cut->axes.begin(), cut->axes.end());
  }
  for (int joint = 0; joint < product_of(result.axes, core); ++joint) {
    const std::vector<int> c = coordinates_of(joint, result.axes, core);
    std::vector<Intervals> lists;
    for (int d : g.in) {
      const CutPtr& cut = cuts[static_cast<std::size_t>(d)];
      lists.push_back(cut ? cut->parts[static_cast<std::size_t>(joint_of(cut->axes, result.axes, c, core))]
                          : Intervals{{0, in[d]}});
    }
    std::optional<Intervals> flat = flatten_product(lists, sizes);
    if (!flat) return std::nullopt;
    result.parts.push_back(std::move(*flat));
  }
  return result;
}

// Tries to say the flat cut as one cut for each output dim of the group (without axes: none), axis i of the
// flat cut going to output dim target[i].
std::optional<std::vector<DimCut>> split_cut(const Group& g, const GroupCut& cut,
                                             const std::vector<std::size_t>& target, const Dims& out,
                                             const MeshCore& core) {
  std::vector<std::int64_t> sizes;
  for (int d : g.out) sizes.push_back(out[d]);
  std::vector<DimCut> per_dim(g.out.size());
  for (std::size_t i = 0; i < target.size(); ++i) per_dim[target[i]].axes.push_back(cut.axes[i]);
  for (std::size_t k = 0; k < g.out.size(); ++k)
    per_dim[k].parts.resize(static_cast<std::size_t>(product_of(per_dim[k].axes, core)));
  std::vector<std::vector<Intervals>> lists(cut.parts.size());
  for (std::size_t joint = 0; joint < cut.parts.size(); ++joint) {
    const std::vector<int> c = coordinates_of(static_cast<int>(joint), cut.axes, core);
    std::int64_t inner = 1;
    lists[joint].resize(g.out.size());
    for (std::size_t k = g.out.size(); k-- > 0;) {
      lists[joint][k] = project(cut.parts[joint], sizes[k], inner);
      inner *= sizes[k];
      const bool empty = cut.parts[joint].empty();
      Intervals& part =
          per_dim[k].parts[static_cast<std::size_t>(joint_of(per_dim[k].axes, cut.axes, c, core))];
      if (!empty) part = lists[joint][k];
    }
  }
  for (std::size_t joint = 0; joint < cut.parts.size();
       ++joint) {  // the product must give back exactly the parts
    const std::vector<int> c = coordinates_of(static_cast<int>(joint), cut.axes, core);
    std::vector<Intervals> product;
    for (std::size_t k = 0; k < g.out.size(); ++k)
      product.push_back(
          per_dim[k].axes.empty()
              ? Intervals{{0, sizes[k]}}
              : per_dim[k].parts[static_cast<std::size_t>(joint_of(per_dim[k].axes, cut.axes, c, core))]);
    const std::optional<Intervals> flat = flatten_product(product, sizes);
    if (!flat || !(*flat == cut.parts[joint])) return std::nullopt;
  }
  return per_dim;
}

bool express(const Group& g, const GroupCut& cut, const Dims& out, const MeshCore& core,
             std::vector<std::optional<DimCut>>& result) {
  if (g.out.size() == 1) {  // a merged dim takes the parts as they stand
    result[static_cast<std::size_t>(g.out[0])] = DimCut{cut.axes, cut.parts};
    return true;
  }
  std::vector<std::size_t> target(cut.axes.size(), 0);
  while (true) {  // every assignment of axes to output dims, outer dims first
    if (std::optional<std::vector<DimCut>> cuts = split_cut(g, cut, target, out, core)) {
      for (std::size_t k = 0; k < g.out.size(); ++k)
        if (!(*cuts)[k].axes.empty()) result[static_cast<std::size_t>(g.out[k])] = std::move((*cuts)[k]);
      return true;
    }
    std::size_t i = target.size();
    while (i > 0 && ++target[i - 1] == g.out.size()) target[--i] = 0;
    if (i == 0) return false;
  }
}

class ReshapePlan {
 public:
  ReshapePlan(const SpecPtr& x, const Dims& out) : x_(*x), out_(out), core_(*x->mesh_core()) {
    for (int d = 0; d < x_.dim(); ++d) cuts_.push_back(x_.cut(d));
    out_cuts_.resize(static_cast<std::size_t>(out.size()));
  }

  Strategy make() {
    if (numel_of(out_) == 0) return empty_case();
    for (int d = 0; d < x_.dim(); ++d)
      if (x_.sizes()[d] == 1) cuts_[static_cast<std::size_t>(d)] = nullptr;  // one element: made whole
    for (const Group& g : group_dims(x_.sizes(), out_)) place(g);
    Strategy s;
    s.inputs = {spec_of(x_.sizes(), as_options(cuts_))};
    s.outputs = {spec_of(out_, out_cuts_)};
    if (moves_)
      s.extra = std::make_shared<const ReshapeSteps>(
          ReshapeSteps{spec_of(merged_sizes_, merged_cuts_), spec_of(merged_sizes_, recuts_)});
    return s;
  }

 private:
  Strategy empty_case() const {
    // Nothing to move; the result is whole (and empty) everywhere.
    Placements p(x_.placements().size());
    return {{x_.shared_from_this()}, {ShardSpec::make(x_.mesh(), p, out_)}, 0};
  }

  static std::vector<std::optional<DimCut>> as_options(const std::vector<CutPtr>& cuts) {
    std::vector<std::optional<DimCut>> list;
    list.reserve(cuts.size());
    for (const CutPtr& c : cuts) list.push_back(c ? std::optional<DimCut>(*c) : std::nullopt);
    return list;
  }

  SpecPtr spec_of(const Dims& sizes, std::vector<std::optional<DimCut>> cuts) const {
    Placements p(x_.placements().size());
    for (std::size_t a = 0; a < p.size(); ++a)
      if (x_.placements()[a].is_partial()) p[a] = x_.placements()[a];
    for (std::size_t d = 0; d < cuts.size(); ++d)
      if (cuts[d])
        for (int a : cuts[d]->axes) p[static_cast<std::size_t>(a)] = Shard(static_cast<int>(d));
    return ShardSpec::make(x_.mesh(), p, sizes, std::move(cuts));
  }

  void place(const Group& g) {
    const std::optional<GroupCut> cut = flat_cut(g, cuts_, x_.sizes(), core_);
    const bool is_cut = !cut || !cut->axes.empty();
    const bool said = is_cut && cut && express(g, *cut, out_, core_, out_cuts_);
    if (is_cut && !said && !recut(g)) {
      if (cut) return merge(g, *cut);
      make_whole(g);
    }
    // As it comes out, in case another group is merged.
    for (int d : g.out) add_merged(out_[d], out_cuts_[static_cast<std::size_t>(d)], {});
  }

  void make_whole(const Group& g) {
    for (int d : g.in) cuts_[static_cast<std::size_t>(d)] = nullptr;
  }

  void add_merged(std::int64_t size, const std::optional<DimCut>& from, const std::optional<DimCut>& to) {
    merged_sizes_.push_back(size);
    merged_cuts_.push_back(from);
    recuts_.push_back(to ? to : from);
  }

  // The group as one dim, cut between rows of the first dim that it becomes.
  void merge(const Group& g, const GroupCut& cut) {
    const std::int64_t rows = out_[g.out.front()];
    std::int64_t n = 1;
    for (int d : g.out) n *= out_[d];
    DimCut flat{cut.axes, {}};
    DimCut out_cut{cut.axes, {}};
    for (Interval i : default_partition(rows, product_of(cut.axes, core_))) {
      out_cut.parts.push_back({i});
      flat.parts.push_back({{i.lo * (n / rows), i.hi * (n / rows)}});
    }
    add_merged(n, DimCut{cut.axes, cut.parts}, flat);
    out_cuts_[static_cast<std::size_t>(g.out.front())] = std::move(out_cut);
    moves_ = true;
  }

  // The group's axes all cut its first dim, at multiples that both shapes share, if they do.
  bool recut(const Group& g) {
    std::vector<int> axes;
    for (int d : g.in)
      if (const CutPtr& cut = cuts_[static_cast<std::size_t>(d)])
        axes.insert(axes.end(), cut->axes.begin(), cut->axes.end());
    std::sort(axes.begin(), axes.end());
    const std::int64_t n_in = x_.sizes()[g.in.front()];
    const std::int64_t n_out = out_[g.out.front()];
    const std::int64_t units = std::gcd(n_in, n_out);
    if (units == 1 || (n_in % n_out != 0 && n_out % n_in != 0)) return false;
    make_whole(g);
    DimCut in_cut;
    DimCut out_cut;
    in_cut.axes = out_cut.axes = axes;
    for (Interval i : default_partition(units, product_of(axes, core_))) {
      in_cut.parts.push_back({{i.lo * (n_in / units), i.hi * (n_in / units)}});
      out_cut.parts.push_back({{i.lo * (n_out / units), i.hi * (n_out / units)}});
    }
    cuts_[static_cast<std::size_t>(g.in.front())] = std::make_shared<const DimCut>(std::move(in_cut));
    out_cuts_[static_cast<std::size_t>(g.out.front())] = std::move(out_cut);
    return true;
  }

  const ShardSpec& x_;
  const Dims& out_;
  const MeshCore& core_;
  std::vector<CutPtr> cuts_;
  std::vector<std::optional<DimCut>> out_cuts_;
  // The shape in which elements move, if they do.
  bool moves_ = false;
  Dims merged_sizes_;
  std::vector<std::optional<DimCut>> merged_cuts_;
  std::vector<std::optional<DimCut>> recuts_;
};

}  // namespace

Strategy plan_reshape(const SpecPtr& x, const Dims& out) { return ReshapePlan(x, out).make(); }

}  // namespace tessera
