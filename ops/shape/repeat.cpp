// repeat: every rank repeats its own elements; it then holds one interval of every copy.
#include "ops/elementwise/array_math.h"
#include "ops/memory_order.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// More intervals per rank than this, and the dim is made whole first.
constexpr std::int64_t kMaxIntervals = 1 << 14;

DimCut repeated(const DimCut& cut, std::int64_t n, std::int64_t times) {
  DimCut out;
  out.axes = cut.axes;
  for (const Intervals& part : cut.parts) {
    Intervals list;
    for (std::int64_t k = 0; k < times; ++k)
      for (Interval i : part)
        if (!i.empty()) list.push_back({i.lo + k * n, i.hi + k * n});
    out.parts.push_back(std::move(list));
  }
  return out;
}

struct RepeatMap : ElementMap {
  Dims times;  // of the input's own dims
  static const OpDef& op() {
    static const OpDef def{"repeat"};
    return def;
  }
  static const OpDef& adjoint_op() {
    static const OpDef def{"repeat_backward"};
    return def;
  }
  Hash hash() const { return Hash().add(times); }
  SpecPtr accepted(const SpecPtr& x) const {
    SpecPtr spec = x;
    for (int d = 0; d < times.size(); ++d) {
      if (times[d] == 1 || !x->cut(d)) continue;
      std::size_t most = 0;
      for (const Intervals& part : x->cut(d)->parts) most = std::max(most, part.size());
      if (times[d] > kMaxIntervals / std::max<std::int64_t>(1, static_cast<std::int64_t>(most)))
        spec = with_cut(*spec, d, x->sizes()[d], std::nullopt);
    }
    return spec;
  }
  SpecPtr placed(const ShardSpec& x) const {
    SpecPtr spec = x.shared_from_this();
    for (int d = 0; d < times.size(); ++d) {
      if (times[d] == 1) continue;
      const std::int64_t n = x.sizes()[d];
      const auto cut = x.cut(d) ? std::optional<DimCut>(repeated(*x.cut(d), n, times[d])) : std::nullopt;
      spec = with_cut(*spec, d, n * times[d], cut);
    }
    return spec;
  }
  // The copies of one dim after another: the filled part doubles.
  Array apply(const Array& x, const MapPlaces&) const {
    Dims sizes = x.sizes();
    for (int d = 0; d < x.dim(); ++d) sizes[d] *= times[d];
    const Array out = empty_like(x, sizes);
    if (out.numel() == 0) return out;
    Array filled = out.box(Dims::filled(x.dim(), 0), x.sizes());
    copy_strided(filled, x);
    for (int d = x.dim(); d-- > 0;) {
      Dims extent = filled.sizes();
      extent[d] = sizes[d];
      const Array room = out.box(Dims::filled(x.dim(), 0), extent);
      for (std::int64_t done = x.size(d); done < sizes[d];) {
        const std::int64_t more = std::min(done, sizes[d] - done);
        copy_strided(room.slice(d, done, more), room.slice(d, 0, more));
        done += more;
      }
      filled = room;
    }
    return out;
  }
  // The copies' sum, one dim after another.
  Array adjoint(const Array& dy, const MapPlaces& p) const {
    if (dy.numel() == 0)
      return Array::zeros(p.from != nullptr ? p.from->local_sizes() : from, dy.dtype(), dy.device());
    Array sum = dy;
    for (int d = 0; d < dy.dim(); ++d) {
      if (times[d] == 1) continue;
      Dims sizes = sum.sizes();
      sizes[d] /= times[d];
      std::int64_t outer = 1;
      std::int64_t inner = 1;
      for (int e = 0; e < sum.dim(); ++e)
        if (e != d) (e < d ? outer : inner) *= sizes[e];
      inner *= sizes[d];
      sum = array_reduce(cpu::ReduceKind::Sum, sum.contiguous().reshape({outer, times[d], inner}), {1})
                .reshape(sizes);
    }
    return sum;
  }
};

}  // namespace

namespace {

Tensor repeat_named(const char* op, const Tensor& x, const Dims& repeats) {
  TS_CHECK(repeats.size() >= x.dim(), op, "numbers {} given for a tensor {}; one a dim is needed",
           repeats.str(), x.sizes().str());
  Dims from = x.sizes();
  while (from.size() < repeats.size()) from.insert(0, 1);
  Dims to = from;
  for (int d = 0; d < to.size(); ++d) {
    TS_CHECK(repeats[d] >= 0, op, "numbers must not be negative, given {}", repeats.str());
    to[d] = checked_product(op, to[d], repeats[d]);
  }
  check_storable(op, to, x.dtype());
  const Tensor y = reshape(x, from);
  return to == from ? y : apply_map(RepeatMap{{from, to}, repeats}, y);
}

}  // namespace

Tensor repeat(const Tensor& x, const Dims& repeats) {
  TS_CHECK(x.defined(), "repeat", "the input is undefined");
  return repeat_named("repeat", x, repeats);
}

Tensor tile(const Tensor& x, const Dims& given) {
  TS_CHECK(x.defined(), "tile", "the input is undefined");
  Dims repeats = given;
  while (repeats.size() < x.dim()) repeats.insert(0, 1);
  return repeat_named("tile", x, repeats);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<std::int64_t> dim) {
  TS_CHECK(x.defined(), "repeat_interleave", "the input is undefined");
  TS_CHECK(repeats >= 0, "repeat_interleave", "the number of repeats must not be negative, given {}",
           repeats);
  if (!dim) return repeat_interleave(flatten(x), repeats, 0);
  const int d = wrap_dim("repeat_interleave", *dim, x.dim());
  if (x.dim() == 0) return repeat_interleave(flatten(x), repeats, 0);
  Dims sizes = x.sizes();
  sizes[d] = checked_product("repeat_interleave", sizes[d], repeats);
  check_storable("repeat_interleave", sizes, x.dtype());
  if (x.dim() == Dims::kMax) {  // the repeats need a dim: others become one
    const bool behind = d < Dims::kMax - 2;
    const Tensor fewer = behind ? flatten(x, d + 1, -1) : flatten(x, 0, d - 1);
    return reshape(repeat_interleave(fewer, repeats, behind ? d : fewer.dim() - (Dims::kMax - d)), sizes);
  }
  sizes = x.sizes();
  sizes.insert(d + 1, repeats);
  return flatten(expand(unsqueeze(x, d + 1), sizes), d, d + 1);
}

}  // namespace tessera
