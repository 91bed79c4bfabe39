// How take and put are split. The rules' letters: small ones for the dims of x, capital ones for those of the
// index.
#include "mesh/intervals.h"
#include "mesh/mesh_state.h"
#include "mesh/redistribute.h"
#include "ops/indexing/rows.h"
#include "ops/indexing/take.h"
#include "ops/reduce/groups.h"
#include "ops/shape/layout_ops.h"

namespace tessera {
namespace {

struct Terms {
  RuleTerm x;
  RuleTerm index;
  RuleTerm taken;
};

Terms terms_of(const Picking& p, int x_dims, int index_dims) {
  Terms t;
  for (int d = 0; d < x_dims; ++d) t.x.push_back({static_cast<char>('a' + d)});
  for (int d = 0; d < index_dims; ++d) {
    const bool shared = p.elements && d != p.dim;
    t.index.push_back({static_cast<char>((shared ? 'a' : 'A') + d)});
  }
  t.taken = t.index;
  if (!p.elements) {
    t.taken.insert(t.taken.begin(), t.x.begin(), t.x.begin() + p.dim);
    t.taken.insert(t.taken.end(), t.x.begin() + p.dim + 1, t.x.end());
  }
  return t;
}

// Dims [first, last) of the index are the taken rows' own; dim d of the index is dim `shift` + d of the
// result.
struct IndexDims {
  int first = 0;
  int last = 0;
  int shift = 0;
};
IndexDims index_dims(const Picking& p, int dims) {
  return p.elements ? IndexDims{p.dim, p.dim + 1, 0} : IndexDims{0, dims, p.dim};
}

unsigned bit(int axis) { return 1U << static_cast<unsigned>(axis); }

int ranks_over(const ShardSpec& spec, unsigned mask) {
  int n = 1;
  for (int a = 0; a < static_cast<int>(spec.placements().size()); ++a)
    if ((mask & bit(a)) != 0) n *= spec.mesh_core()->axes[static_cast<std::size_t>(a)].size;
  return n;
}

double elements(const Dims& sizes) { return static_cast<double>(numel_of(sizes)); }

// `spec` whole on the axes of `mask`.
SpecPtr freed(const ShardSpec& spec, unsigned mask) {
  Placements p = spec.placements();
  for (int a = 0; a < static_cast<int>(p.size()); ++a)
    if ((mask & bit(a)) != 0) p[static_cast<std::size_t>(a)] = Replicate();
  return with_placements(spec, p);
}

// The axes of `mask` that cut one of the dims [first, last).
unsigned cutting(const ShardSpec& spec, unsigned mask, int first, int last) {
  unsigned found = 0;
  for (int a = 0; a < static_cast<int>(spec.placements().size()); ++a) {
    const Placement& p = spec.placement(a);
    if ((mask & bit(a)) != 0 && p.is_shard() && p.dim >= first && p.dim < last) found |= bit(a);
  }
  return found;
}

// The axes of `mask` that do not cut one of the dims [first, last) are made to cut the largest of these,
// inside whatever cuts it already (which moves nothing where the spec is whole on them).
SpecPtr spread(const ShardSpec& given, unsigned mask, int first, int last) {
  const unsigned missing = mask & ~cutting(given, mask, first, last);
  if (missing == 0 || first == last) return given.shared_from_this();
  const SpecPtr spec = freed(given, missing);
  int dim = first;
  for (int d = first; d < last; ++d)
    if (spec->sizes()[d] > spec->sizes()[dim]) dim = d;
  std::vector<int> axes;
  for (int a = 0; a < static_cast<int>(spec->placements().size()); ++a)
    if ((missing & bit(a)) != 0) axes.push_back(a);
  return cut_further(*spec, dim, axes);
}

bool whole_on(const ShardSpec& spec, unsigned mask) {
  for (int a = 0; a < static_cast<int>(spec.placements().size()); ++a)
    if ((mask & bit(a)) != 0 && !spec.placement(a).is_replicate()) return false;
  return true;
}

// The cheaper of two strategies; on a tie the one that was there before.
void offer(Strategy& best, Strategy candidate) {
  if (best.outputs.empty() || candidate.cost < best.cost) best = std::move(candidate);
}

// What making `table` whole on `axes` sends: rows that travel by number never send
// more, but for the counts, which a table of less is not worth.
double whole_cost(const ShardSpec& table, unsigned axes) {
  return redistribute_cost(table, *freed(table, axes));
}
bool worth_counts(const Dims& table, int ranks) {
  constexpr double kCounts = 4;  // two I64 to every rank, against f32
  return elements(table) > kCounts * ranks;
}

double moving_cost(const std::vector<SpecPtr>& from, const Strategy& to) {
  return redistribute_cost(*from[0], *to.inputs[0]) + redistribute_cost(*from[1], *to.inputs[1]);
}

std::shared_ptr<const void> owners(const ShardSpec& spec, int dim, unsigned mask) {
  return std::make_shared<const RowOwners>(spec, dim, mask);
}

// ---- take ----

struct TakeProblem {
  const Picking& picking;
  const std::vector<SpecPtr>& in;
  Rule rule;
  Dims taken;
  unsigned axes = 0;  // that cut the indexed dim
  int ranks = 1;      // over these

  const ShardSpec& x() const { return *in[0]; }
  const ShardSpec& index() const { return *in[1]; }
  Strategy resolved(const std::vector<SpecPtr>& inputs, bool whole) const {
    Rule r = rule;
    r.inputs[0][static_cast<std::size_t>(picking.dim)].whole = whole;
    return resolve({&r, inputs, {taken}, {}});
  }
};

// Every rank takes what it holds.
Strategy take_own(const TakeProblem& p) {
  Strategy s = p.resolved(p.in, false);
  if (!s.inputs[0]->cut(p.picking.dim)) return s;
  // A sum that is owed costs its reduction later; few rows for an index that is whole may stay owed.
  const IndexDims own = index_dims(p.picking, p.index().dim());
  const bool few = elements(p.taken) <= elements(p.x().sizes()) / p.ranks;
  if (!few || cutting(p.index(), p.axes, own.first, own.last) != 0)
    s.cost += elements(p.taken) * (p.ranks - 1);
  s.extra = owners(*s.inputs[0], p.picking.dim, 0);
  return s;
}

std::optional<Strategy> take_routed(const TakeProblem& p) {
  const int dim = p.picking.dim;
  const IndexDims own = index_dims(p.picking, p.index().dim());
  const SpecPtr bare = with_cut(p.x(), dim, p.x().sizes()[dim], std::nullopt);
  Strategy s = p.resolved({bare, spread(p.index(), p.axes, own.first, own.last)}, true);
  if (!whole_on(*s.inputs[0], p.axes)) return std::nullopt;
  s.inputs[0] = with_cut(*s.inputs[0], dim, p.x().sizes()[dim], *p.x().cut(dim));
  const double share = static_cast<double>(p.ranks - 1) / p.ranks;
  const int copies = ranks_over(p.x(), p.axes & ~cutting(*s.inputs[1], p.axes, own.first, own.last));
  s.cost = share * copies * (elements(p.taken) + elements(p.index().sizes()));
  if (worth_counts(p.x().sizes(), p.ranks)) s.cost = std::min(s.cost, whole_cost(p.x(), p.axes));
  s.cost += moving_cost(p.in, s);
  s.extra = owners(*s.inputs[0], dim, p.axes);
  return s;
}

// ---- put ----

struct PutProblem {
  const Picking& picking;
  const std::vector<SpecPtr>& in;
  Rule rule;
  Dims out;
  CutPtr cut = {};    // of the indexed dim, as the result is to have it
  unsigned axes = 0;  // of that cut
  int ranks = 1;

  Strategy resolved(const std::vector<SpecPtr>& inputs) const { return resolve({&rule, inputs, {out}, {}}); }
  // The result cut along the indexed dim, where all it lacks for that are the axes of the cut.
  SpecPtr cut_result(const ShardSpec& spec) const {
    return with_cut(*freed(spec, axes), picking.dim, out[picking.dim], *cut);
  }
};

// Every rank has all terms and adds those of its own rows.
Strategy put_own(const PutProblem& p) {
  Strategy s = p.resolved({freed(*p.in[0], p.axes), freed(*p.in[1], p.axes)});
  s.outputs[0] = p.cut_result(*s.outputs[0]);
  s.cost = moving_cost(p.in, s);
  s.extra = owners(*s.outputs[0], p.picking.dim, 0);
  return s;
}

// Terms travel to the owners of their rows. Where the terms are whole, every rank keeps to owners of its own
// coordinate.
std::optional<Strategy> put_routed(const PutProblem& p) {
  const IndexDims own = index_dims(p.picking, p.in[1]->dim());
  const auto fitted = [&](const ShardSpec& spec, int shift) {
    unsigned misplaced = 0;
    for (int a = 0; a < static_cast<int>(spec.placements().size()); ++a)
      if ((p.axes & bit(a)) != 0 && !spec.placement(a).is_replicate()) misplaced |= bit(a);
    return spread(spec, misplaced, own.first + shift, own.last + shift);
  };
  Strategy s = p.resolved({fitted(*p.in[0], own.shift), fitted(*p.in[1], 0)});
  const unsigned routed = cutting(*s.inputs[1], p.axes, own.first, own.last);
  if (routed == 0 || !whole_on(*s.inputs[1], p.axes & ~routed) || !whole_on(*s.inputs[0], p.axes & ~routed))
    return std::nullopt;
  s.outputs[0] = p.cut_result(*s.outputs[0]);
  const double ranks = ranks_over(*p.in[0], routed);
  s.cost = (ranks - 1) / ranks * (elements(p.in[0]->sizes()) + elements(p.in[1]->sizes()));
  if (worth_counts(p.out, p.ranks)) s.cost = std::min(s.cost, whole_cost(*s.outputs[0], routed));
  s.cost += moving_cost(p.in, s);
  s.extra = owners(*s.outputs[0], p.picking.dim, routed);
  return s;
}

}  // namespace

Dims taken_sizes(const Picking& p, const Dims& x, const Dims& index) {
  if (p.elements) return index;
  Dims sizes;
  for (int d = 0; d < p.dim; ++d) sizes.push_back(x[d]);
  for (const std::int64_t n : index) sizes.push_back(n);
  for (int d = p.dim + 1; d < x.size(); ++d) sizes.push_back(x[d]);
  return sizes;
}

Strategy take_plan(const Picking& picking, const std::vector<SpecPtr>& in) {
  const Terms t = terms_of(picking, in[0]->dim(), in[1]->dim());
  TakeProblem p{picking, in, {}, taken_sizes(picking, in[0]->sizes(), in[1]->sizes())};
  p.rule.inputs = {t.x, t.index};
  p.rule.outputs = {t.taken};
  p.rule.linearity = Linearity::First;
  p.axes = cutting_axes(*in[0], {picking.dim});
  p.ranks = ranks_over(*in[0], p.axes);
  if (p.axes == 0) return p.resolved(in, false);
  Strategy best = take_own(p);
  if (std::optional<Strategy> routed = take_routed(p)) {
    if (picking.nearby) return std::move(*routed);
    // It may make x whole, which rows by number never send more than.
    const bool whole = !best.inputs[0]->cut(picking.dim);
    if (routed->cost < best.cost || (whole && routed->cost == best.cost)) best = std::move(*routed);
  }
  offer(best, p.resolved(in, true));
  return best;
}

Strategy put_plan(const Picking& picking, const std::vector<SpecPtr>& in, const Dims& out,
                  const SpecPtr& like) {
  const Terms t = terms_of(picking, out.size(), in[1]->dim());
  PutProblem p{picking, in, {}, out};
  p.rule.inputs = {t.taken, t.index};
  p.rule.outputs = {t.x};
  p.rule.linearity = Linearity::First;
  Strategy owed = p.resolved(in);
  owed.held = {like};
  if (!like || !like->cut(picking.dim)) return owed;
  p.cut = like->cut(picking.dim);
  p.axes = cutting_axes(*like, {picking.dim});
  p.ranks = ranks_over(*like, p.axes);
  Strategy best = put_own(p);
  if (std::optional<Strategy> routed = put_routed(p)) {
    routed->held = {like};
    if (picking.nearby) return std::move(*routed);
    offer(best, std::move(*routed));
  }
  if ((owed.outputs[0]->partial_mask() & p.axes) != 0) owed.cost += elements(out) * (p.ranks - 1);
  offer(best, std::move(owed));
  best.held = {like};
  return best;
}

}  // namespace tessera
