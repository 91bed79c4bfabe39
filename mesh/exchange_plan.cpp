#include "mesh/exchange_plan.h"

namespace tessera {
namespace {

struct Overlap {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t length = 0;
};

std::vector<Overlap> overlaps(const std::vector<Segment>& from, const std::vector<Segment>& to) {
  std::vector<Overlap> list;
  for (const Segment& t : to)
    for (const Segment& f : from) {
      const std::int64_t lo = std::max(t.global, f.global);
      const std::int64_t hi = std::min(t.global + t.length, f.global + f.length);
      if (lo < hi) list.push_back({f.local + lo - f.global, t.local + lo - t.global, hi - lo});
    }
  return list;
}

// Whether a box is one run of a row-major buffer.
bool is_one_run(const Dims& extent, const Dims& sizes) {
  int d = 0;
  while (d < extent.size() && extent[d] == 1) ++d;
  for (++d; d < extent.size(); ++d)
    if (extent[d] != sizes[d]) return false;
  return true;
}

// The boxes that `from` and `to` share: the product of the dims' overlaps.
PeerPieces shared_pieces(int peer, const LocalLayout& from, const LocalLayout& to) {
  PeerPieces result;
  result.peer = peer;
  const std::size_t dims = from.dims.size();
  std::vector<std::vector<Overlap>> per_dim(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    per_dim[d] = overlaps(from.dims[d], to.dims[d]);
    if (per_dim[d].empty()) return result;
  }
  std::size_t boxes = 1;
  for (const std::vector<Overlap>& list : per_dim) boxes *= list.size();
  result.pieces.reserve(boxes);
  std::vector<std::size_t> index(dims, 0);
  while (true) {
    ExchangePiece piece;
    std::int64_t count = 1;
    for (std::size_t d = 0; d < dims; ++d) {
      const Overlap& o = per_dim[d][index[d]];
      piece.from.push_back(o.from);
      piece.to.push_back(o.to);
      piece.extent.push_back(o.length);
      count *= o.length;
    }
    result.elements += count;
    result.pieces.push_back(piece);
    std::size_t d = dims;
    while (d > 0 && ++index[d - 1] == per_dim[d - 1].size()) index[--d] = 0;
    if (d == 0) break;
  }
  result.one_run_there = boxes == 1 && is_one_run(result.pieces.front().extent, to.sizes);
  return result;
}

bool share_elements(const LocalLayout& from, const LocalLayout& to) {
  for (std::size_t d = 0; d < from.dims.size(); ++d)
    if (overlaps(from.dims[d], to.dims[d]).empty()) return false;
  return true;
}

// Whether no rank has anything for another one.
bool nobody_sends(const ExchangeProblem& problem) {
  if (problem.ranks == 1) return true;
  std::vector<LocalLayout> to;
  to.reserve(static_cast<std::size_t>(problem.ranks));
  for (int r = 0; r < problem.ranks; ++r) to.push_back(problem.to(r));
  for (int a = 0; a < problem.ranks; ++a) {
    const LocalLayout from = problem.from(a);
    for (int b = 0; b < problem.ranks; ++b)
      if (a != b && problem.matches(a, b) && share_elements(from, to[static_cast<std::size_t>(b)]))
        return false;
  }
  return true;
}

}  // namespace

std::int64_t ExchangePlan::sent_elements() const {
  std::int64_t n = 0;
  for (const PeerPieces& s : sends) n += s.elements;
  return n;
}

std::int64_t ExchangePlan::received_elements() const {
  std::int64_t n = 0;
  for (const PeerPieces& r : recvs) n += r.elements;
  return n;
}

ExchangePlan plan_exchange(const ExchangeProblem& problem) {
  ExchangePlan plan;
  plan.rank = problem.rank;
  const LocalLayout my_from = problem.from(problem.rank);
  const LocalLayout my_to = problem.to(problem.rank);
  plan.from_sizes = my_from.sizes;
  plan.to_sizes = my_to.sizes;
  plan.own.peer = problem.rank;
  for (int r = 0; r < problem.ranks; ++r) {
    if (r == problem.rank) {
      if (problem.matches(r, r)) plan.own = shared_pieces(r, my_from, my_to);
      continue;
    }
    if (problem.matches(problem.rank, r))
      if (PeerPieces s = shared_pieces(r, my_from, problem.to(r)); s.elements > 0)
        plan.sends.push_back(std::move(s));
    if (problem.matches(r, problem.rank))
      if (PeerPieces s = shared_pieces(r, problem.from(r), my_to); s.elements > 0)
        plan.recvs.push_back(std::move(s));
  }
  plan.covers = plan.own.elements + plan.received_elements() >= numel_of(plan.to_sizes);
  plan.silent = plan.sends.empty() && plan.recvs.empty() && nobody_sends(problem);
  return plan;
}

}  // namespace tessera
