#include "ops/conv/conv_frame.h"

#include <algorithm>

#include "mesh/intervals.h"
#include "ops/window/window_buffer.h"

namespace tessera {
namespace {

// Outputs whose windows stay inside the rank's own part, or reach over an end of the domain beyond which
// there is nothing.
Interval inner_outputs(const FrameDim& d) {
  if (!d.in_buffer) return d.out;
  const Window& w = d.window;
  const bool first = d.own.lo == 0 && !w.reads_beyond();
  const bool last = d.own.hi == d.n && !w.reads_beyond();
  const std::int64_t lo = first ? d.out.lo : ceil_div(d.own.lo + w.pad_lo, w.stride);
  const std::int64_t hi = last ? d.out.hi : floor_div(d.own.hi + w.pad_lo - w.reach(), w.stride) + 1;
  return {std::clamp(lo, d.out.lo, d.out.hi), std::clamp(hi, d.out.lo, d.out.hi)};
}

// The part of a copy whose destination lies in the box; false: none.
bool clip(FrameCopy& c, const Dims& lo, const Dims& extent) {
  for (int d = 0; d < lo.size(); ++d) {
    const Interval in = intersect({c.to[d], c.to[d] + c.extent[d]}, {lo[d], lo[d] + extent[d]});
    if (in.empty()) return false;
    c.from[d] += in.lo - c.to[d];
    c.to[d] = in.lo;
    c.extent[d] = in.length();
  }
  return true;
}

void move(Dims& position, const Dims& from, const Dims& to) {
  for (int d = 0; d < position.size(); ++d) position[d] += to[d] - from[d];
}

class Planner {
 public:
  Planner(const FrameProblem& p, bool added) : p_(p), origin_(Dims::filled(p.x_sizes.size(), 0)) {
    frame_.added = added;
    for (const FrameDim& d : p.dims) inner_.push_back(inner_outputs(d));
    for (std::size_t d = 0; d < p.dims.size(); ++d)
      if (p.dims[d].in_buffer)
        origin_[static_cast<int>(d) + 2] = need(d, p.dims[d].out).lo - p.dims[d].own.lo;
  }

  ConvFrame plan() {
    if (numel_of(p_.x_sizes) == 0 || numel_of(p_.y_sizes) == 0) return {};
    bool any_edge = false;
    for (std::size_t d = 0; d < p_.dims.size(); ++d) {
      if (inner_[d].empty()) return {};
      any_edge = any_edge || inner_[d] != p_.dims[d].out;
    }
    if ((any_edge && numel_of(p_.x_sizes) < frames_from()) || !plan_inside()) return {};
    plan_sources();
    for (std::size_t d = 0; d < p_.dims.size(); ++d) {
      add_edge(d, {p_.dims[d].out.lo, inner_[d].lo});
      add_edge(d, {inner_[d].hi, p_.dims[d].out.hi});
    }
    std::int64_t outputs = 0;
    for (const FrameEdge& e : frame_.edges)
      outputs += numel_of(e.outputs) * static_cast<std::int64_t>(e.at.size());
    if (2 * outputs > numel_of(p_.y_sizes)) return {};
    for (FrameEdge& e : frame_.edges)
      if (frame_.added && (e.dim != frame_.edges.front().dim || !keep_unseen(e))) return {};
    find_pieces();
    frame_.used = true;
    return std::move(frame_);
  }

 private:
  bool apart(std::size_t d) const { return d == 0 && p_.x_sizes[0] == 1 && !frame_.added; }
  Interval need(std::size_t d, Interval outputs) const { return p_.dims[d].window.input_of(outputs); }

  // False: along some dim it would read nothing.
  bool plan_inside() {
    frame_.from = frame_.out_from = Dims::filled(p_.x_sizes.size(), 0);
    frame_.extent = p_.x_sizes;
    frame_.out_extent = p_.y_sizes;
    for (std::size_t d = 0; d < p_.dims.size(); ++d) {
      const FrameDim& dim = p_.dims[d];
      const int at = static_cast<int>(d) + 2;
      frame_.pad_lo.push_back(0);
      frame_.pad_hi.push_back(0);
      if (!dim.in_buffer) continue;
      const Interval outputs = apart(d) ? inner_[d] : dim.out;
      const Interval reads = need(d, outputs);
      const Interval own = intersect(reads, dim.own);
      if (own.empty()) return false;
      frame_.out_from[at] = outputs.lo - dim.out.lo;
      frame_.out_extent[at] = outputs.length();
      frame_.from[at] = own.lo - dim.own.lo;
      frame_.extent[at] = own.length();
      frame_.pad_lo[at - 2] = own.lo - reads.lo;
      frame_.pad_hi[at - 2] = reads.hi - own.hi;
    }
    return true;
  }

  // Where in the whole buffer own elements and those that arrive would lie, before and after wrapping.
  void plan_sources() {
    const Dims zero = Dims::filled(p_.x_sizes.size(), 0);
    std::vector<FrameCopy> fetched;
    if (p_.halo == nullptr) {
      fetched.push_back({-1, false, zero, zero, p_.x_sizes});
    } else {
      for (const ExchangePiece& piece : p_.halo->own.pieces)
        fetched.push_back({-1, false, piece.from, piece.to, piece.extent});
      std::int64_t at = 0;
      for (const PeerPieces& peer : p_.halo->recvs)
        for (const ExchangePiece& piece : peer.pieces) {
          fetched.push_back({static_cast<int>(frame_.pieces.size()), false, zero, piece.to, piece.extent});
          frame_.pieces.push_back({at, piece.extent});
          at += numel_of(piece.extent);
        }
    }
    for (const FrameCopy& c : fetched) {
      if (p_.wrap == nullptr) sources_.push_back(c);
      for (std::size_t i = 0; p_.wrap != nullptr && i < p_.wrap->own.pieces.size(); ++i) {
        const ExchangePiece& w = p_.wrap->own.pieces[i];
        FrameCopy wrapped = c;
        if (!clip(wrapped, w.from, w.extent)) continue;
        move(wrapped.to, w.from, w.to);
        sources_.push_back(wrapped);
      }
    }
    for (FrameCopy& c : sources_) {
      c.seen = c.piece < 0;
      for (int d = 0; d < origin_.size(); ++d) c.seen = c.seen && c.from[d] - c.to[d] == origin_[d];
    }
  }

  // The outputs of one side along dim d: of dims before it the inner ones, of those after it all.
  void add_edge(std::size_t d, Interval side) {
    if (side.empty()) return;
    const int dims = p_.x_sizes.size();
    Dims at = Dims::filled(dims, 0);  // of the side's buffer in the whole one
    const Interval taps{0, p_.dims[d].window.kernel};
    FrameEdge e{static_cast<int>(d), apart(d), {at}, p_.y_sizes, p_.x_sizes, {}, {}, taps, {}};
    for (std::size_t i = 0; i < p_.dims.size(); ++i) {
      const FrameDim& dim = p_.dims[i];
      const int s = static_cast<int>(i) + 2;
      const Interval outputs = i == d ? side : i < d ? inner_[i] : dim.out;
      e.at[0][s] = outputs.lo - dim.out.lo;
      e.outputs[s] = outputs.length();
      if (!dim.in_buffer) continue;
      const Interval reads = need(i, outputs);
      at[s] = reads.lo - need(i, dim.out).lo;
      e.sizes[s] = reads.length();
    }
    const Dims extent = e.sizes;
    const bool second = !frame_.added && !frame_.edges.empty() && frame_.edges.back().dim == e.dim &&
                        frame_.edges.back().outputs == e.outputs;
    if (second) {
      frame_.edges.back().at.push_back(e.at[0]);
      frame_.edges.back().sizes[0] += extent[0];
    } else {
      frame_.edges.push_back(std::move(e));
    }
    Dims place = Dims::filled(dims, 0);
    if (second) place[0] = extent[0];
    for (FrameCopy c : sources_) {
      if (!clip(c, at, extent)) continue;
      move(c.to, at, place);
      frame_.edges.back().copies.push_back(c);
    }
  }

  // Leaves of the edge's buffer what the inside has not seen; false: that is most of it.
  bool keep_unseen(FrameEdge& e) const {
    std::erase_if(e.copies, [](const FrameCopy& c) { return c.seen; });
    if (e.copies.empty()) return false;
    const Dims whole = e.sizes;
    Dims lo = e.copies.front().to;
    Dims hi = Dims::filled(whole.size(), 0);
    for (const FrameCopy& c : e.copies)
      for (int d = 0; d < whole.size(); ++d) {
        lo[d] = std::min(lo[d], c.to[d]);
        hi[d] = std::max(hi[d], c.to[d] + c.extent[d]);
      }
    for (int d = 0; d < whole.size(); ++d) e.sizes[d] = hi[d] - lo[d];
    for (FrameCopy& c : e.copies) move(c.to, lo, Dims::filled(whole.size(), 0));
    for (int d = 2; d < whole.size(); ++d) {
      e.pad_lo.push_back(lo[d]);
      e.pad_hi.push_back(whole[d] - hi[d]);
    }
    keep_taps(e);
    return 2 * numel_of(e.sizes) <= numel_of(whole);
  }

  void keep_taps(FrameEdge& e) const {
    const Window& w = p_.dims[static_cast<std::size_t>(e.dim)].window;
    const std::int64_t size = e.sizes[e.dim + 2];
    std::int64_t& lo = e.pad_lo[e.dim];
    std::int64_t& hi = e.pad_hi[e.dim];
    const auto meets = [&](std::int64_t tap) {
      for (std::int64_t o = 0; o < e.outputs[e.dim + 2]; ++o) {
        const std::int64_t at = o * w.stride - lo + (tap - e.taps.lo) * w.dilation;
        if (at >= 0 && at < size) return true;
      }
      return false;
    };
    for (; e.taps.length() > 1 && lo >= w.dilation && !meets(e.taps.lo); ++e.taps.lo) lo -= w.dilation;
    for (; e.taps.length() > 1 && hi >= w.dilation && !meets(e.taps.hi - 1); --e.taps.hi) hi -= w.dilation;
  }

  void find_pieces() {
    std::vector<int> readers(frame_.pieces.size(), 0);  // boxes that edges read of each
    for (const FrameEdge& e : frame_.edges)
      for (const FrameCopy& c : e.copies)
        if (c.piece >= 0) ++readers[static_cast<std::size_t>(c.piece)];
    for (FrameEdge& e : frame_.edges) {
      const FrameCopy* only = e.copies.size() == 1 ? &e.copies.front() : nullptr;
      e.one_piece = only != nullptr && only->piece >= 0 && only->extent == e.sizes;
      e.alone = e.one_piece && readers[static_cast<std::size_t>(only->piece)] == 1;
    }
  }

  const FrameProblem& p_;
  Dims origin_;  // of the whole buffer, in the rank's input
  std::vector<Interval> inner_;
  std::vector<FrameCopy> sources_;
  ConvFrame frame_;
};

}  // namespace

ConvFrame plan_frame(const FrameProblem& problem, bool added) { return Planner(problem, added).plan(); }

}  // namespace tessera
