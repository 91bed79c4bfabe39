#include "train/gradient_term.h"

#include "mesh/layout.h"
#include "nn/optimizer_kernels.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::train {
namespace {

constexpr const char* kOp = "DataParallel";

// For each axis of the gradient's mesh, which axis of the whole mesh it is.
std::vector<int> axes_in_mesh(const ShardSpec& spec, const DeviceMesh& mesh, const char* name) {
  const DeviceMesh own = spec.mesh();
  std::vector<int> axes;
  unsigned mask = 0;
  for (const MeshAxis& a : own.axes()) {
    if (!mesh.has_axis(a.name)) break;
    axes.push_back(mesh.axis(a.name));
    mask |= 1U << static_cast<unsigned>(axes.back());
  }
  TS_CHECK(axes.size() == own.axes().size() && mesh.group(mask) == own.comm(), kOp,
           "the gradient of '{}' lives on a mesh {} that is no part of {}; take the activations' mesh from "
           "this one by name",
           name, own.str(), mesh.str());
  return axes;
}

// The first coordinate speaks for an axis over which the gradient is the same.
bool speaks_for(const DeviceMesh& mesh, int axis) { return mesh.coordinate(axis) == 0; }

// Puts the parts that this rank holds of a cut tensor where they are in the whole.
void place_parts(const Array& whole, const Array& local, const ShardSpec& spec, int rank) {
  const LocalLayout layout = layout_of(spec, rank);
  const auto dims = layout.dims.size();
  std::vector<std::size_t> index(dims, 0);
  for (const auto& segments : layout.dims)
    if (segments.empty()) return;
  while (true) {
    Dims at;
    Dims from;
    Dims extent;
    for (std::size_t d = 0; d < dims; ++d) {
      const Segment& s = layout.dims[d][index[d]];
      at.push_back(s.global);
      from.push_back(s.local);
      extent.push_back(s.length);
    }
    copy_strided(whole.box(at, extent), local.box(from, extent));
    std::size_t d = dims;
    while (d > 0 && ++index[d - 1] == layout.dims[d - 1].size()) index[--d] = 0;
    if (d == 0) return;
  }
}

struct Share {
  bool speaks = true;  // this rank's term is not zero
  bool spans_ddp = false;
};

Share share_of(const GradientTerm& how, const Tensor& grad, const char* name) {
  Share share;
  std::vector<int> axes;
  if (grad.is_sharded()) axes = axes_in_mesh(*grad.spec(), how.mesh, name);
  for (int a = 0; a < how.mesh.ndim(); ++a) {
    const auto it = std::find(axes.begin(), axes.end(), a);
    const bool spanned = it != axes.end();
    if (a == how.ddp_axis && spanned) share.spans_ddp = true;
    if (a == how.ddp_axis && !spanned) continue;  // other samples: every rank has a term
    const bool same = !spanned || grad.spec()->placement(static_cast<int>(it - axes.begin())).is_replicate();
    if (same && !speaks_for(how.mesh, a)) share.speaks = false;
  }
  return share;
}

// Gradients are sums; any other owed reduction is made first (no operation of the library leaves one).
Tensor with_sums_only(const Tensor& grad) {
  if (!grad.is_sharded()) return grad;
  for (const Placement& p : grad.spec()->placements())
    if (p.is_partial() && p.op != ReduceOp::Sum) return grad.redistribute(without_partial(*grad.spec()));
  return grad;
}

void scale(const Array& a, double by) {
  const Array factor = Array::full({1}, by, DType::F64, a.device());
  if (is_half(a.dtype())) {
    const Array wide = a.to(DType::F32);
    kernels::scale_all(a.device(), std::span(&wide, 1), factor);
    copy_strided(a, wide);
  } else {
    kernels::scale_all(a.device(), std::span(&a, 1), factor);
  }
}

}  // namespace

void write_gradient_term(const GradientTerm& how, const Tensor& grad, const Array& out, const char* name) {
  if (!grad.defined()) {
    fill(out, 0.0);
    return;
  }
  const Tensor g = with_sums_only(grad);
  const Share share = share_of(how, g, name);
  if (!share.speaks) {
    fill(out, 0.0);
    return;
  }
  if (g.is_sharded() && g.spec()->is_cut()) {
    fill(out, 0.0);
    place_parts(out, g.local(), *g.spec(), g.spec()->mesh().rank());
  } else if (!same_view(out, g.local())) {
    copy_strided(out, g.local());
  }
  const int ddp = how.ddp_axis >= 0 && !share.spans_ddp ? how.mesh.size(how.ddp_axis) : 1;
  if (ddp > 1) scale(out, 1.0 / ddp);
}

}  // namespace tessera::train
