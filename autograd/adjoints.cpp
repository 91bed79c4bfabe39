#include "autograd/adjoints.h"

#include <bit>

#include "autograd/node.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"

namespace tessera {
namespace {

// What records of a placement change are filed under. It is worth telling apart that a cut moves, so that all
// ranks together hold what they held, and that ranks receive a copy of what others keep.
const char* kind_of_change(const ShardSpec& from, const ShardSpec& to) {
  if (&from == &to || from.mesh_core() != to.mesh_core()) return "redistribute";
  const DeviceMesh mesh = from.mesh();
  bool scatters = false;
  for (int a = 0; a < mesh.ndim(); ++a) {
    if (mesh.size(a) == 1) continue;
    const Placement& p = from.placement(a);
    const Placement& q = to.placement(a);
    if (p.is_shard() && q.is_replicate()) return "all-gather";
    scatters = scatters || (p.is_partial() && q.is_shard());
  }
  return scatters ? "reduce-scatter" : "redistribute";
}

}  // namespace

Tensor as_replicated(const Tensor& plain, const DeviceMesh& mesh) {
  if (plain.is_sharded()) return plain;
  Tensor t(plain.local(), ShardSpec::replicated(mesh, plain.sizes()));
  record_simple("as_replicated", {&plain, 1}, {&t, 1},
                [](const BackwardContext&, const Tensors& g) { return g; });
  return t;
}

namespace {

// `value` as a placement change of t.
Tensor recorded_as(const Tensor& t, Tensor value) {
  const auto gradient = [&]() -> GradFunction {
    if (!t.is_sharded() || t.spec()->mesh_core() == value.spec()->mesh_core())
      return [](const BackwardContext&, const Tensors& g) { return g; };
    return [from = t.spec()](const BackwardContext&, const Tensors& g) {
      return Tensors{on_mesh_of(from, g[0])};
    };
  };
  record("redistribute", {&t, 1}, {&value, 1}, gradient, false);
  if (value.grad_fn()) value.grad_fn()->reusable = true;
  return value;
}

Tensor placed(const Tensor& t, const SpecPtr& from, const SpecPtr& to) {
  const CommScope scope(kind_of_change(*from, *to));
  const DeviceMesh mesh = to->mesh();
  if (mesh.comm().checks_calls())
    check_same(mesh.comm(),
               fmt::format("redistribute {} {} to {}", name_of(t.dtype()), from->str(), to->str()));
  if (t.is_sharded() && from == to) return t;
  return recorded_as(t, {redistribute(t.local(), from, to), to});
}

}  // namespace

Tensor redistribute(const Tensor& t, const SpecPtr& to) {
  TS_CHECK(t.sizes() == to->sizes(), "redistribute", "the tensor has global sizes {}, the spec {}",
           t.sizes().str(), to->sizes().str());
  return placed(t, t.is_sharded() ? t.spec() : ShardSpec::replicated(to->mesh(), t.sizes()), to);
}

// What was made of what a tensor owes.
struct SumMade {
  Tensor value;
  std::uint32_t terms = 0;  // version of what it was made of
  std::uint32_t version = 0;
  const GraphCapture* capture = nullptr;
};

namespace {

// Whether a sum (or maximum …) is made on the way.
bool makes_sum(const Tensor& t, const SpecPtr& to) {
  return t.is_sharded() && t.spec() != to && t.spec()->mesh_core() == to->mesh_core() &&
         (t.spec()->partial_mask() & ~to->partial_mask()) != 0;
}

// What t's implementation has kept for a call that needs it as `to`; null if that must be made.
SumMade* kept_of(const Tensor& t, const SpecPtr& to) {
  SumMade* made = t.impl()->made.get();
  if (made == nullptr || !makes_sum(t, to)) return nullptr;
  const bool current = made->terms == t.local().version() && made->version == made->value.local().version() &&
                       made->capture == GraphCapture::current();
  const SpecPtr& spec = made->value.spec();
  return current && (spec == to || (!spec->has_partial() && !to->has_partial())) ? made : nullptr;
}

Tensor from_kept(const Tensor& t, SumMade& made, const SpecPtr& to) {
  const DeviceMesh mesh = to->mesh();
  if (mesh.comm().checks_calls())
    check_same(mesh.comm(), fmt::format("redistribute {} {}, whose sum was made before, to {}",
                                        name_of(t.dtype()), t.spec()->str(), to->str()));
  const bool has_history = grad_enabled() && t.requires_grad();
  Tensor value(made.value.local(), made.value.spec());
  if (has_history) {
    if (!made.value.requires_grad()) made.value = recorded_as(t, std::move(value));
    value = made.value;
  }
  return redistribute(value, to);
}

// Without history what is handed out is not the tensor that is kept: its user may call it a leaf.
void keep(const Tensor& t, const Tensor& value) {
  GraphCapture* capture = GraphCapture::current();
  t.impl()->made = std::make_shared<SumMade>(SumMade{value.requires_grad() ? value : value.detach(),
                                                     t.local().version(), value.local().version(), capture});
  if (capture != nullptr)
    capture->when_ended([owner = std::weak_ptr<TensorImpl>(t.impl())] {
      if (const auto impl = owner.lock()) impl->made = nullptr;
    });
}

}  // namespace

Tensor settled(const Tensor& t, const SpecPtr& from, const SpecPtr& to) {
  return makes_sum(t, to) ? settled(t, to) : placed(t, from, to);
}

Tensor settled(const Tensor& t, const SpecPtr& to) {
  if (!makes_sum(t, to)) return redistribute(t, to);
  if (SumMade* made = kept_of(t, to)) return from_kept(t, *made, to);
  Tensor value = redistribute(t, to);
  keep(t, value);
  return value;
}

Tensor redistribute(const Tensor& t, const DeviceMesh& mesh, const Placements& placements) {
  TS_CHECK(mesh.defined(), "redistribute", "the mesh is undefined");
  const bool own = t.is_sharded() && t.spec()->mesh_core() == mesh.core();
  return redistribute(
      t, own ? with_placements(*t.spec(), placements) : ShardSpec::make(mesh, placements, t.sizes()));
}

Tensor on_mesh_of(const SpecPtr& like, const Tensor& gradient) {
  if (!gradient.is_sharded() || gradient.spec()->mesh_core() == like->mesh_core()) return gradient;
  return redistribute(gradient, without_partial(*like));
}

namespace {

// Which tensors go into one message with tensor `first`, itself included.
std::vector<std::size_t> reduced_with(std::size_t first, std::span<const Tensor> tensors,
                                      std::span<const SpecPtr> to) {
  const auto axes_of = [&](std::size_t i) {
    return to[i] && tensors[i].is_sharded() ? only_reduces(*tensors[i].spec(), *to[i]) : 0U;
  };
  const unsigned axes = axes_of(first);
  std::vector<std::size_t> list{first};
  if (axes == 0) return list;
  const auto op_of = [&](std::size_t i) { return tensors[i].spec()->placement(std::countr_zero(axes)).op; };
  for (std::size_t i = first + 1; i < tensors.size(); ++i)
    if (axes_of(i) == axes && op_of(i) == op_of(first) && tensors[i].dtype() == tensors[first].dtype())
      list.push_back(i);
  return list;
}

// Each of `list`, which only_reduces.
void reduce_all(Tensors& tensors, std::span<const SpecPtr> to, const std::vector<std::size_t>& list) {
  const ShardSpec& from = *tensors[list[0]].spec();
  const CommScope scope("redistribute");
  std::vector<Array> terms;
  for (const std::size_t i : list) {
    if (from.mesh().comm().checks_calls())
      check_same(from.mesh().comm(), fmt::format("redistribute {} {} to {}", name_of(tensors[i].dtype()),
                                                 tensors[i].spec()->str(), to[i]->str()));
    terms.push_back(tensors[i].local());
  }
  const std::vector<Array> sums = reduce_together(terms, from, only_reduces(from, *to[list[0]]));
  for (std::size_t k = 0; k < list.size(); ++k) {
    Tensor& t = tensors[list[k]];
    const Tensor value = recorded_as(t, {sums[k], to[list[k]]});
    keep(t, value);
    t = value;
  }
}

}  // namespace

Tensors settled(std::span<const Tensor> tensors, std::span<const SpecPtr> to) {
  Tensors moved(tensors.begin(), tensors.end());
  std::vector<SpecPtr> left(to.begin(), to.end());
  std::vector<std::size_t> twin(moved.size());
  for (std::size_t i = 0; i < moved.size(); ++i) {
    twin[i] = i;
    for (std::size_t j = 0; left[i] && j < i; ++j)
      if (to[j] == to[i] && tensors[j].same(tensors[i])) twin[i] = j;
    if (twin[i] != i || !left[i]) {
      left[i] = nullptr;
    } else if (SumMade* made = kept_of(moved[i], left[i])) {
      moved[i] = from_kept(moved[i], *made, left[i]);
      left[i] = nullptr;
    }
  }
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (!left[i]) continue;
    const std::vector<std::size_t> together = reduced_with(i, moved, left);
    if (together.size() > 1) {
      reduce_all(moved, to, together);
    } else {
      moved[i] = settled(moved[i], left[i]);
    }
    for (const std::size_t done : together) left[done] = nullptr;
  }
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = moved[twin[i]];
  return moved;
}

}  // namespace tessera
