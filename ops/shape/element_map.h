// Ops that move elements about (or repeat them) and compute nothing: slice, flip, repeat, diagonal, roll.
// Internal to ops/.
//
// Such an op is a linear map whose result follows its input's cuts: the result's spec is a function of the
// input's. Its gradient is the adjoint map, whose gradient is the map again. A map is a small value with
//
//   Dims from, to;                                         global sizes
//   const OpDef& op() const, adjoint_op() const;
//   Hash hash() const;                                     of the rest
//   SpecPtr accepted(const SpecPtr& x) const;              how the input must lie (mostly as it does)
//   SpecPtr placed(const ShardSpec& x) const;              where its elements are in the result
//   Extra prepare(const ShardSpec* from, const ShardSpec* to) const;  what a plan keeps
//   Array apply(const Array& x, const MapPlaces& p) const; local
//   Array adjoint(const Array& dy, const MapPlaces& p) const;
//
// Partial inputs of any reduction pass; in the adjoint, which may add, sums do.
#pragma once
#include "ops/op.h"

namespace tessera {

using Extra = std::shared_ptr<const void>;

struct MapPlaces {
  const ShardSpec* from = nullptr;  // null: plain
  const ShardSpec* to = nullptr;
  const void* extra = nullptr;
};

// What most maps need not say.
struct ElementMap {
  Dims from;
  Dims to;
  static SpecPtr accepted(const SpecPtr& x) { return x; }
  static Extra prepare(const ShardSpec*, const ShardSpec*) { return nullptr; }
};

// Where the gradient of an input that was held as `like` (null: plain) is to lie: cut as the input was. On
// axes that did not cut it the sums that dy owes are still owed, and what dy is cut by cuts one more dim,
// since dy would be made whole else. `result_of` says where the result of such an input lies.
using SpecFunction = FunctionRef<SpecPtr(const SpecPtr& x)>;
SpecPtr gradient_spec(const SpecPtr& like, const ShardSpec& dy, const Dims& sizes, SpecFunction result_of);

template <class Map>
Tensor apply_map(const Map& map, const Tensor& x);

template <class Map>
Tensor apply_adjoint(const Map& map, const Tensor& dy, const SpecPtr& like) {
  auto local = [&](LocalCall& l) {
    const Extra plain = l.plan ? nullptr : map.prepare(nullptr, nullptr);
    l.out[0] =
        map.adjoint(l.in[0], {l.out_spec(0), l.in_spec(0), l.plan ? l.plan->extra.get() : plain.get()});
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const auto result_of = [&](const SpecPtr& x) { return map.placed(*map.accepted(x)); };
    const SpecPtr out = map.accepted(gradient_spec(like, *in[0], map.from, result_of));
    Strategy s{{map.placed(*out)}, {out}, 0};
    s.extra = map.prepare(out.get(), s.inputs[0].get());
    s.held = {like};
    return s;
  };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [map](const BackwardContext&, const Tensors& g) { return Tensors{apply_map(map, g[0])}; };
  };
  OpCall c;
  c.op = &map.adjoint_op();
  c.inputs = {&dy, 1};
  c.output_sizes = {&map.from, 1};
  if (dy.is_sharded())
    c.parameters = map.hash().add(map.from).add(reinterpret_cast<std::int64_t>(like.get()));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

template <class Map>
Tensor apply_map(const Map& map, const Tensor& x) {
  auto local = [&](LocalCall& l) {
    const Extra plain = l.plan ? nullptr : map.prepare(nullptr, nullptr);
    l.out[0] = map.apply(l.in[0], {l.in_spec(0), l.out_spec(0), l.plan ? l.plan->extra.get() : plain.get()});
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    const SpecPtr x_spec = map.accepted(in[0]);
    Strategy s{{x_spec}, {map.placed(*x_spec)}, 0};
    s.extra = map.prepare(x_spec.get(), s.outputs[0].get());
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [map, like = in[0].spec()](const BackwardContext&, const Tensors& g) {
      return Tensors{apply_adjoint(map, g[0], like)};
    };
  };
  OpCall c;
  c.op = &map.op();
  c.inputs = {&x, 1};
  c.output_sizes = {&map.to, 1};
  if (x.is_sharded()) c.parameters = map.hash();
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
