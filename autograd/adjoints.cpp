#include "autograd/adjoints.h"

#include <bit>

#include "autograd/node.h"
#include "runtime/error.h"

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

Tensor redistribute(const Tensor& t, const SpecPtr& to) {
  TS_CHECK(t.sizes() == to->sizes(), "redistribute", "the tensor has global sizes {}, the spec {}",
           t.sizes().str(), to->sizes().str());
  const SpecPtr from = t.is_sharded() ? t.spec() : ShardSpec::replicated(to->mesh(), t.sizes());
  const CommScope scope(kind_of_change(*from, *to));
  if (to->mesh().comm().checks_calls())
    check_same(to->mesh().comm(),
               fmt::format("redistribute {} {} to {}", name_of(t.dtype()), from->str(), to->str()));
  if (t.is_sharded() && from == to) return t;
  Tensor moved(redistribute(t.local(), from, to), to);
  record("redistribute", {&t, 1}, {&moved, 1}, [&]() -> GradFunction {
    if (from->mesh_core() == to->mesh_core())
      return [](const BackwardContext&, const Tensors& g) { return g; };
    return [from](const BackwardContext&, const Tensors& g) { return Tensors{on_mesh_of(from, g[0])}; };
  });
  return moved;
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
    Tensor moved(sums[k], to[list[k]]);
    record_simple("redistribute", {&t, 1}, {&moved, 1},
                  [](const BackwardContext&, const Tensors& g) { return g; });
    t = moved;
  }
}

}  // namespace

Tensors redistribute(std::span<const Tensor> tensors, std::span<const SpecPtr> to) {
  Tensors moved(tensors.begin(), tensors.end());
  std::vector<SpecPtr> left(to.begin(), to.end());
  std::vector<std::size_t> twin(moved.size());
  for (std::size_t i = 0; i < moved.size(); ++i) {
    twin[i] = i;
    for (std::size_t j = 0; left[i] && j < i; ++j)
      if (to[j] == to[i] && tensors[j].same(tensors[i])) twin[i] = j;
    if (twin[i] != i) left[i] = nullptr;
  }
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (!left[i]) continue;
    const std::vector<std::size_t> together = reduced_with(i, moved, left);
    if (together.size() > 1) {
      reduce_all(moved, to, together);
    } else {
      moved[i] = redistribute(moved[i], left[i]);
    }
    for (const std::size_t done : together) left[done] = nullptr;
  }
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = moved[twin[i]];
  return moved;
}

}  // namespace tessera
