#include "ops/window/window_parts.h"

#include <algorithm>

#include "ops/window/window_buffer.h"

namespace tessera {
namespace {

// Rows `outputs` of `axis`, as far as they read positions `seen`, counted from `origin`.
AxisPlan restricted(const AxisPlan& axis, Interval seen, std::int64_t origin, Interval outputs) {
  AxisPlan part{axis.dim, axis.growth, 0, axis.width, {}};
  part.rows = picked_rows(axis.rows, outputs, [&](std::int64_t at) {
    return at >= seen.lo && at < seen.hi ? at - origin : std::int64_t{-1};
  });
  return part;
}

// The outputs from the first to the last that reads some of these positions.
Interval readers(const cpu::SparseRows& rows, Interval seen) {
  Interval out;
  for (std::int64_t o = 0; o < rows.rows(); ++o) {
    const auto* begin = rows.index.data() + rows.first[static_cast<std::size_t>(o)];
    const auto* end = rows.index.data() + rows.first[static_cast<std::size_t>(o) + 1];
    if (std::none_of(begin, end, [&](std::int64_t i) { return i >= seen.lo && i < seen.hi; })) continue;
    if (out.empty()) out.lo = o;
    out.hi = o + 1;
  }
  return out;
}

WindowTerm term_of(const std::vector<AxisPlan>& axes, const ArrivingBox& box) {
  WindowTerm term{box, box.to, box.extent, {}};
  for (const AxisPlan& axis : axes) {
    const Interval seen{box.to[axis.dim], box.to[axis.dim] + box.extent[axis.dim]};
    const Interval outputs = readers(axis.rows, seen);
    term.out_from[axis.dim] = outputs.lo;
    term.out_extent[axis.dim] = outputs.length();
    term.axes.push_back(restricted(axis, seen, seen.lo, outputs));
    term.axes.back().width = seen.length();
  }
  return term;
}

bool splits(const ExchangePlan& exchange, std::size_t boxes) {
  constexpr std::size_t kMostBoxes = 8;
  return !exchange.local_only() && exchange.own.pieces.size() == 1 && boxes <= kMostBoxes;
}

class Parts {
 public:
  Parts(const ExchangePlan& exchange, const std::vector<AxisPlan>& axes)
      : exchange_(exchange),
        own_(exchange.own.pieces.front()),
        axes_(axes),
        boxes_(arriving_boxes(exchange)) {}

  WindowParts make() {
    for (const AxisPlan& axis : axes_) inside_.push_back(inside(axis));
    if (std::any_of(inside_.begin(), inside_.end(), [](Interval i) { return i.empty(); })) return {};
    add(std::vector<int>(axes_.size(), 0), 0);
    return {true, std::move(boxes_), std::move(parts_)};
  }

 private:
  Interval own(int dim) const { return {own_.to[dim], own_.to[dim] + own_.extent[dim]}; }

  // Outputs that read own positions only: the first run of them.
  Interval inside(const AxisPlan& axis) const {
    Interval run;
    for (std::int64_t o = 0; o < axis.rows.rows(); ++o) {
      const Interval reads = positions_read(axis.rows, {o, o + 1});
      const bool in = reads.empty() || intersect(reads, own(axis.dim)).length() == reads.length();
      if (in && run.empty()) run = {o, o};
      if (!in && !run.empty()) break;
      if (in) run.hi = o + 1;
    }
    return run;
  }

  // side: 0 inside, 1 before it, 2 after it.
  Interval outputs(std::size_t axis, int side) const {
    const Interval in = inside_[axis];
    return side == 0 ? in : side == 1 ? Interval{0, in.lo} : Interval{in.hi, axes_[axis].rows.rows()};
  }

  // All combinations of sides from this axis on, the inside first.
  void add(const std::vector<int>& sides, std::size_t axis) {
    if (axis == axes_.size()) return add(sides);
    for (int side = 0; side < 3; ++side) {
      if (outputs(axis, side).empty()) continue;
      std::vector<int> chosen = sides;
      chosen[axis] = side;
      add(chosen, axis + 1);
    }
  }

  void add(const std::vector<int>& sides) {
    const bool in = std::all_of(sides.begin(), sides.end(), [](int s) { return s == 0; });
    WindowPart part;
    part.out_from = Dims::filled(own_.to.size(), 0);
    part.out_extent = exchange_.to_sizes;
    part.sizes = in ? exchange_.from_sizes : exchange_.to_sizes;
    Dims begin = Dims::filled(own_.to.size(), 0);  // of what is read, in the buffer
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const AxisPlan& axis = axes_[i];
      const Interval out = outputs(i, sides[i]);
      const Interval reads = positions_read(axis.rows, out);
      begin[axis.dim] = in ? own_.to[axis.dim] - own_.from[axis.dim] : reads.lo;
      if (!in) part.sizes[axis.dim] = reads.length();
      part.out_from[axis.dim] = out.lo;
      part.out_extent[axis.dim] = out.length();
      part.axes.push_back(restricted(axis, reads, begin[axis.dim], out));
      part.axes.back().base = axis.base + begin[axis.dim];
    }
    if (!in) {
      add_copy(part, -1, begin, {0, own_.to, own_.extent});
      for (std::size_t b = 0; b < boxes_.size(); ++b) add_copy(part, static_cast<int>(b), begin, boxes_[b]);
    }
    parts_.push_back(std::move(part));
  }

  // What a box of the buffer and a part's have in common.
  void add_copy(WindowPart& part, int index, const Dims& begin, const ArrivingBox& box) const {
    WindowCopy copy{index, box.to, box.to, box.extent};
    for (int d = 0; d < begin.size(); ++d) {
      const Interval both =
          intersect({begin[d], begin[d] + part.sizes[d]}, {box.to[d], box.to[d] + box.extent[d]});
      if (both.empty()) return;
      copy.from[d] = both.lo - box.to[d] + (index < 0 ? own_.from[d] : 0);
      copy.to[d] = both.lo - begin[d];
      copy.extent[d] = both.length();
    }
    part.copies.push_back(copy);
  }

  const ExchangePlan& exchange_;
  const ExchangePiece& own_;
  const std::vector<AxisPlan>& axes_;
  std::vector<ArrivingBox> boxes_;
  std::vector<Interval> inside_;
  std::vector<WindowPart> parts_;
};

}  // namespace

Interval positions_read(const cpu::SparseRows& rows, Interval outputs) {
  if (outputs.empty()) return {};
  const auto begin = rows.index.begin() + rows.first[static_cast<std::size_t>(outputs.lo)];
  const auto end = rows.index.begin() + rows.first[static_cast<std::size_t>(outputs.hi)];
  if (begin == end) return {};
  const auto [least, most] = std::minmax_element(begin, end);
  return {*least, *most + 1};
}

cpu::SparseRows picked_rows(const cpu::SparseRows& rows, Interval outputs,
                            FunctionRef<std::int64_t(std::int64_t)> position) {
  cpu::SparseRows part;
  for (std::int64_t o = outputs.lo; o < outputs.hi; ++o) {
    for (auto t = static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o)]);
         t < static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o) + 1]); ++t)
      if (const std::int64_t at = position(rows.index[t]); at >= 0) part.add(at, rows.weight[t]);
    part.end_row();
  }
  return part;
}

void transpose(std::vector<AxisPlan>& axes) {
  for (AxisPlan& axis : axes) {
    axis.rows = cpu::transposed(axis.rows, axis.width);
    axis.growth = 1 / axis.growth;
  }
}

void sort_by_growth(std::vector<AxisPlan>& axes) {
  const auto less = [](const AxisPlan& a, const AxisPlan& b) { return a.growth < b.growth; };
  if (!std::is_sorted(axes.begin(), axes.end(), less))  // sorting takes memory
    std::stable_sort(axes.begin(), axes.end(), less);
}

std::vector<ArrivingBox> arriving_boxes(const ExchangePlan& exchange) {
  std::vector<ArrivingBox> boxes;
  std::int64_t at = 0;
  for (const PeerPieces& peer : exchange.recvs)
    for (const ExchangePiece& piece : peer.pieces) {
      boxes.push_back({at, piece.to, piece.extent});
      at += numel_of(piece.extent);
    }
  return boxes;
}

Array empty_arrivals(const ExchangePlan& exchange, const Array& like) {
  return Array::empty({exchange.received_elements()}, like.dtype(), like.device());
}

Array box_of(const Array& arrivals, const ArrivingBox& box) {
  return box_of_message(arrivals, box.at, box.extent);
}

WindowTerms window_terms(const ExchangePlan& exchange, const std::vector<AxisPlan>& axes) {
  WindowTerms terms;
  const std::vector<ArrivingBox> boxes = arriving_boxes(exchange);
  if (!splits(exchange, boxes.size())) return terms;
  for (const ArrivingBox& box : boxes) terms.arriving.push_back(term_of(axes, box));
  const ExchangePiece& own = exchange.own.pieces.front();
  for (const AxisPlan& axis : axes) {
    const Interval seen{own.to[axis.dim], own.to[axis.dim] + own.extent[axis.dim]};
    terms.own.push_back(restricted(axis, seen, seen.lo - own.from[axis.dim], {0, axis.rows.rows()}));
    terms.own.back().width = exchange.from_sizes[axis.dim];
  }
  terms.used = true;
  return terms;
}

WindowParts window_parts(const ExchangePlan& exchange, const std::vector<AxisPlan>& axes) {
  if (!splits(exchange, arriving_boxes(exchange).size())) return {};
  return Parts(exchange, axes).make();
}

}  // namespace tessera
