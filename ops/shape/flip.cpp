// flip: every rank turns its own elements round; the result's cuts are the mirror image of the input's.
#include "ops/memory_order.h"
#include "ops/shape/element_map.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// A dim of size n seen in a mirror. The list of intervals is turned round as well, so that the local buffer
// is flipped as a whole.
DimCut mirrored(const DimCut& cut, std::int64_t n) {
  DimCut out;
  out.axes = cut.axes;
  for (const Intervals& part : cut.parts) {
    Intervals list;
    for (auto i = part.rbegin(); i != part.rend(); ++i) list.push_back({n - i->hi, n - i->lo});
    out.parts.push_back(std::move(list));
  }
  return out;
}

Array flipped(const Array& x, const Dims& dims) {
  Array out = empty_like(x, x.sizes());
  if (x.numel() == 0) return out;
  Dims strides = x.strides();
  std::int64_t offset = x.offset();
  for (std::int64_t d : dims) {
    const int dim = static_cast<int>(d);
    offset += (x.size(dim) - 1) * strides[dim];
    strides[dim] = -strides[dim];
  }
  copy_strided(out, x.as_strided(x.sizes(), strides, offset));
  return out;
}

struct FlipMap : ElementMap {
  Dims dims;
  static const OpDef& op() {
    static const OpDef def{"flip"};
    return def;
  }
  static const OpDef& adjoint_op() {
    static const OpDef def{"flip_backward"};
    return def;
  }
  Hash hash() const { return Hash().add(dims); }
  SpecPtr placed(const ShardSpec& x) const {
    SpecPtr spec = x.shared_from_this();
    for (std::int64_t d : dims) {
      const int dim = static_cast<int>(d);
      if (x.cut(dim)) spec = with_cut(*spec, dim, x.sizes()[dim], mirrored(*x.cut(dim), x.sizes()[dim]));
    }
    return spec;
  }
  Array apply(const Array& x, const MapPlaces&) const { return flipped(x, dims); }
  Array adjoint(const Array& dy, const MapPlaces&) const { return flipped(dy, dims); }
};

}  // namespace

Tensor flip(const Tensor& x, const Dims& given) {
  TS_CHECK(x.defined(), "flip", "the input is undefined");
  Dims dims;
  for (std::int64_t d : given) {
    const int dim = wrap_dim("flip", d, x.dim());
    TS_CHECK(std::find(dims.begin(), dims.end(), dim) == dims.end(), "flip", "dim {} appears twice in {}",
             dim, given.str());
    dims.push_back(dim);
  }
  if (x.dim() == 0 || dims.empty()) return x;
  std::sort(dims.begin(), dims.end());
  return apply_map(FlipMap{{x.sizes(), x.sizes()}, dims}, x);
}

}  // namespace tessera
