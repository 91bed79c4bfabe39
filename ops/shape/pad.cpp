// Constant padding is local (the outermost shards grow); periodic padding and rolling are one exchange each,
// and the adjoint of that exchange is their gradient.
#include "autograd/adjoints.h"
#include "ops/memory_order.h"
#include "ops/op.h"
#include "ops/random/random.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "ops/window/pad_inside.h"
#include "ops/window/window_buffer.h"
#include "runtime/checked_sizes.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// Elements added before and after each dim.
struct Padding {
  Dims before;
  Dims after;
};

// The padded dim's cut: intervals move by `before`, the outermost ones grow over the padding.
DimCut grown(const DimCut& cut, std::int64_t n, std::int64_t before, std::int64_t after) {
  DimCut out;
  out.axes = cut.axes;
  for (const Intervals& part : cut.parts) {
    Intervals list;
    for (Interval i : part)
      list.push_back({i.lo == 0 ? 0 : i.lo + before, i.hi == n ? n + before + after : i.hi + before});
    out.parts.push_back(std::move(list));
  }
  if (n == 0) out.parts.front() = {{0, before + after}};
  return out;
}

SpecPtr grown_spec(const ShardSpec& x, const Padding& p) {
  SpecPtr spec = x.shared_from_this();
  for (int d = 0; d < x.dim(); ++d) {
    if (p.before[d] == 0 && p.after[d] == 0) continue;
    const std::int64_t n = x.sizes()[d];
    std::optional<DimCut> cut;
    if (x.cut(d)) cut = grown(*x.cut(d), n, p.before[d], p.after[d]);
    spec = with_cut(*spec, d, n + p.before[d] + p.after[d], cut);
  }
  return spec;
}

// Copies the input's intervals to where they lie in the padded buffer.
struct Placer {
  const ShardSpec* spec;
  const Padding& padding;
  void run(const Array& to, const Array& piece, int dim) const {
    if (dim == piece.dim()) {
      copy_strided(to, piece);
      return;
    }
    const Intervals own = spec != nullptr ? spec->intervals(dim) : Intervals{{0, piece.size(dim)}};
    const std::int64_t n = spec != nullptr ? spec->sizes()[dim] : piece.size(dim);
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (Interval i : own) {
      if (i.lo == 0) target += padding.before[dim];
      run(to.slice(dim, target, i.length()), piece.slice(dim, source, i.length()), dim + 1);
      source += i.length();
      target += i.length();
      if (i.hi == n) target += padding.after[dim];  // not the last one of its list after a roll
    }
  }
};

Array pad_local(const Array& x, const ShardSpec* from, const Dims& out_sizes, const Padding& p,
                double value) {
  const Array out = full_like(x, out_sizes, value);
  if (x.numel() > 0) Placer{from, p}.run(out, x, 0);
  return out;
}

Tensor crop(const Tensor& x, const Padding& p) {
  Tensor y = x;
  for (int d = 0; d < x.dim(); ++d)
    if (p.before[d] != 0 || p.after[d] != 0) y = slice(y, d, p.before[d], x.sizes()[d] - p.after[d]);
  return y;
}

Tensor pad_constant(const Tensor& x, const Padding& p, double value) {
  static const OpDef op{"pad"};
  Dims sizes = x.sizes();
  for (int d = 0; d < x.dim(); ++d) sizes[d] += p.before[d] + p.after[d];
  if (sizes == x.sizes()) return x;
  auto local = [&](LocalCall& l) {
    l.out[0] = pad_local(l.in[0], l.in_spec(0), l.out_sizes(0, sizes), p, value);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const SpecPtr x_spec = value == 0.0 ? in[0] : without_partial(*in[0]);
    return Strategy{{x_spec}, {grown_spec(*x_spec, p)}, 0};
  };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [p](const BackwardContext&, const Tensors& g) { return Tensors{crop(g[0], p)}; };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(p.before).add(p.after).add(value);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// ---- maps of boxes: y = F x by one exchange ----

// Input positions that one interval of the result reads: the interval moved by `shift`, periodic.
struct Periodic {
  Padding grow;  // the result is longer by these (zero for roll)
  Dims shift;    // result position o reads input position o - shift
};

BoxMap periodic_map(const ShardSpec* from, const ShardSpec* to, const Dims& from_sizes, const Periodic& m) {
  return plan_box_map(from, from_sizes, [&](int rank, int d) -> DimSegments {
    const std::int64_t n = from_sizes[d];
    const Intervals own =
        to != nullptr ? to->intervals(d, rank) : Intervals{{0, n + m.grow.before[d] + m.grow.after[d]}};
    std::vector<Segment> segments;
    std::int64_t at = 0;
    for (Interval i : own) {
      for (Segment s : window_segments({i.lo - m.shift[d], i.hi - m.shift[d]}, n, PaddingMode::Circular)) {
        s.local += at;
        segments.push_back(s);
      }
      at += i.length();
    }
    return {segments, at};
  });
}

// Periodic padding and rolling: one exchange, whose adjoint adds at the owner.
struct PeriodicMap : ElementMap {
  const OpDef* forward = nullptr;
  Periodic m;
  const OpDef& op() const { return *forward; }
  static const OpDef& adjoint_op() {
    static const OpDef def{"pad_circular_backward"};
    return def;
  }
  Hash hash() const { return Hash().add(m.grow.before).add(m.grow.after).add(m.shift); }
  SpecPtr placed(const ShardSpec& x) const { return grown_spec(x, m.grow); }
  Extra prepare(const ShardSpec* x, const ShardSpec* y) const {
    return x == nullptr ? nullptr : std::make_shared<BoxMap>(periodic_map(x, y, from, m));
  }
  Array apply(const Array& x, const MapPlaces& p) const {
    if (p.extra != nullptr) return fetch_in_order(*static_cast<const BoxMap*>(p.extra), x);
    const Array out = empty_like(x, to);
    if (out.numel() > 0) copy_periodic(out, x, 0);
    return out;
  }
  Array adjoint(const Array& dy, const MapPlaces& p) const {
    if (p.extra != nullptr) return give_back_in_order(*static_cast<const BoxMap*>(p.extra), dy);
    return give_back_in_order(periodic_map(nullptr, nullptr, from, m), dy);
  }

 private:
  // Dims before `dim` are done.
  void copy_periodic(const Array& out, const Array& x, int dim) const {
    for (; dim < x.dim(); ++dim) {
      if (m.shift[dim] == 0 && out.size(dim) == x.size(dim)) continue;
      const Interval reads{-m.shift[dim], out.size(dim) - m.shift[dim]};
      for (const Segment& s : window_segments(reads, x.size(dim), PaddingMode::Circular))
        copy_periodic(out.slice(dim, s.local, s.length), x.slice(dim, s.global, s.length), dim + 1);
      return;
    }
    copy_strided(out, x);
  }
};

const OpDef kCircularPad{"pad_circular"};

Tensor periodic(const OpDef& op, const Tensor& x, const Periodic& m) {
  Dims sizes = x.sizes();
  for (int d = 0; d < x.dim(); ++d) sizes[d] += m.grow.before[d] + m.grow.after[d];
  return apply_map(PeriodicMap{{x.sizes(), sizes}, &op, m}, x);
}

Padding padding_of(const Tensor& x, const std::vector<std::int64_t>& pad) {
  TS_CHECK(pad.size() % 2 == 0 && static_cast<int>(pad.size() / 2) <= x.dim(), "pad",
           "{} values given for a tensor of {} dims; pairs for at most all dims are allowed", pad.size(),
           x.dim());
  Padding p{Dims::filled(x.dim(), 0), Dims::filled(x.dim(), 0)};
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const int d = x.dim() - 1 - static_cast<int>(i);
    p.before[d] = pad[2 * i];
    p.after[d] = pad[2 * i + 1];
    TS_CHECK(checked_sum("pad", checked_sum("pad", x.sizes()[d], p.before[d]), p.after[d]) >= 0, "pad",
             "dim {} of size {} cannot be padded by {} and {}", d, x.sizes()[d], p.before[d], p.after[d]);
  }
  Dims sizes = x.sizes();
  for (int d = 0; d < x.dim(); ++d) sizes[d] = sizes[d] + p.before[d] + p.after[d];
  check_storable("pad", sizes, x.dtype());
  return p;
}

// What negative amounts cut off; they are zero afterwards. Cropping comes before growing.
Tensor crop_negative(const Tensor& x, Padding& p) {
  Tensor y = x;
  for (int d = 0; d < x.dim(); ++d) {
    const std::int64_t lo = std::max<std::int64_t>(0, -p.before[d]);
    const std::int64_t hi = x.sizes()[d] - std::max<std::int64_t>(0, -p.after[d]);
    TS_CHECK(lo <= hi, "pad", "dim {} of size {} cannot be cropped by {} and {}", d, x.sizes()[d],
             -p.before[d], -p.after[d]);
    y = slice(y, d, lo, hi);
    p.before[d] = std::max<std::int64_t>(0, p.before[d]);
    p.after[d] = std::max<std::int64_t>(0, p.after[d]);
  }
  return y;
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<std::int64_t>& amounts, PadMode mode, double value) {
  TS_CHECK(x.defined(), "pad", "the input is undefined");
  Padding p = padding_of(x, amounts);
  if (mode == PadMode::Reflect || mode == PadMode::Replicate)
    return pad_from_inside(x, static_cast<int>(amounts.size() / 2), p.before, p.after, mode);
  const Tensor y = crop_negative(x, p);
  if (mode == PadMode::Constant) return pad_constant(y, p, value);
  for (int d = 0; d < y.dim(); ++d)
    TS_CHECK(p.before[d] <= y.sizes()[d] && p.after[d] <= y.sizes()[d], "pad",
             "circular padding of dim {} (size {}) by {} and {}: at most the size is allowed", d,
             y.sizes()[d], p.before[d], p.after[d]);
  return periodic(kCircularPad, y, {p, p.before});
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  static const OpDef op{"roll"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (dims.empty() && shifts.size() == 1) return reshape(roll(reshape(x, {-1}), shifts, {0}), x.sizes());
  TS_CHECK(shifts.size() == dims.size(), op.name, "{} shifts given for {} dims", shifts.size(), dims.size());
  Periodic m{{Dims::filled(x.dim(), 0), Dims::filled(x.dim(), 0)}, Dims::filled(x.dim(), 0)};
  for (int i = 0; i < dims.size(); ++i) m.shift[wrap_dim(op.name, dims[i], x.dim())] += shifts[i];
  return periodic(op, x, m);
}

}  // namespace tessera
