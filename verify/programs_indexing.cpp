#include "verify/program_table.h"

namespace tessera::verify {

namespace {

Tensors both(const std::pair<Tensor, Tensor>& ordered) { return {ordered.first, ordered.second}; }

}  // namespace

void add_indexing(OpTable& t) {
  t["index_select"] = [](const Call& c) -> Tensors {
    return {index_select(c.in(0), c.integer("dim"), c.in(1))};
  };
  t["gather"] = [](const Call& c) -> Tensors { return {gather(c.in(0), c.integer("dim"), c.in(1))}; };
  t["scatter_add"] = [](const Call& c) -> Tensors {
    return {scatter_add(c.in(0), c.integer("dim"), c.in(1), c.in(2))};
  };
  t["embedding"] = [](const Call& c) -> Tensors {
    EmbeddingOptions o;
    o.padding_idx = c.get<std::int64_t>("padding_idx", INT64_MIN);
    if (c.has("max_norm")) o.max_norm = c.get<double>("max_norm");
    o.norm_type = c.get("norm_type", 2.0);
    o.scale_grad_by_freq = c.get("scale_grad_by_freq", false);
    return {embedding(c.in(0), c.in(1), o)};
  };
  t["take_along_dim"] = [](const Call& c) -> Tensors {
    return {c.has("dim") ? take_along_dim(c.in(0), c.in(1), c.integer("dim"))
                         : take_along_dim(c.in(0), c.in(1))};
  };
  t["slice_scatter"] = [](const Call& c) -> Tensors {
    return {slice_scatter(c.in(0), c.in(1), c.get<std::int64_t>("dim", 0), c.get<std::int64_t>("start", 0),
                          c.get<std::int64_t>("end", INT64_MAX), c.get<std::int64_t>("step", 1))};
  };
  t["select_scatter"] = [](const Call& c) -> Tensors {
    return {select_scatter(c.in(0), c.in(1), c.integer("dim"), c.integer("index"))};
  };
  t["one_hot"] = [](const Call& c) -> Tensors {
    return {one_hot(c.in(0), c.get<std::int64_t>("num_classes", -1))};
  };
  t["masked_fill"] = [](const Call& c) -> Tensors {
    return {masked_fill(c.in(0), c.in(1), c.get<double>("value"))};
  };
  t["sort"] = [](const Call& c) {
    return both(sort(c.in(0), c.get<std::int64_t>("dim", -1), c.get("descending", false)));
  };
  t["median"] = [](const Call& c) {
    return c.has("dim") ? both(median(c.in(0), c.integer("dim"), c.get("keepdim", false)))
                        : Tensors{median(c.in(0))};
  };
  t["argsort"] = [](const Call& c) -> Tensors {
    return {argsort(c.in(0), c.get<std::int64_t>("dim", -1), c.get("descending", false))};
  };
  t["topk"] = [](const Call& c) {
    return both(topk(c.in(0), c.integer("k"),
                     {.dim = c.get<std::int64_t>("dim", -1), .largest = c.get("largest", true)}));
  };
}

}  // namespace tessera::verify
