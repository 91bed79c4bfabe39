#include "verify/program_table.h"

namespace tessera::verify {
namespace {

Tensors padded(const Call& c) {
  const std::map<std::string, PadMode> modes{{"constant", PadMode::Constant},
                                             {"circular", PadMode::Circular},
                                             {"reflect", PadMode::Reflect},
                                             {"replicate", PadMode::Replicate}};
  return {pad(c.in(0), c.get<std::vector<std::int64_t>>("pad"), c.one_of("mode", "constant", modes),
              c.get("value", 0.0))};
}

}  // namespace

void add_shapes(OpTable& t) {
  t["reshape"] = [](const Call& c) -> Tensors { return {reshape(c.in(0), c.dims("shape"))}; };
  t["flatten"] = [](const Call& c) -> Tensors {
    return {flatten(c.in(0), c.get<std::int64_t>("start_dim", 0), c.get<std::int64_t>("end_dim", -1))};
  };
  t["unflatten"] = [](const Call& c) -> Tensors {
    return {unflatten(c.in(0), c.integer("dim"), c.dims("sizes"))};
  };
  t["permute"] = [](const Call& c) -> Tensors { return {permute(c.in(0), c.dims("dims"))}; };
  t["transpose"] = [](const Call& c) -> Tensors {
    return {transpose(c.in(0), c.integer("dim0"), c.integer("dim1"))};
  };
  t["unsqueeze"] = along(unsqueeze);
  t["squeeze"] = [](const Call& c) -> Tensors {
    return {c.has("dim") ? squeeze(c.in(0), c.dims("dim")) : squeeze(c.in(0))};
  };
  t["expand"] = [](const Call& c) -> Tensors { return {expand(c.in(0), c.dims("sizes"))}; };
  t["slice"] = [](const Call& c) -> Tensors {
    return {slice(c.in(0), c.integer("dim"), c.get<std::int64_t>("start", 0),
                  c.get<std::int64_t>("end", INT64_MAX), c.get<std::int64_t>("step", 1))};
  };
  t["split"] = [](const Call& c) -> Tensors {
    return split(c.in(0), c.get<std::vector<std::int64_t>>("sizes"), c.get<std::int64_t>("dim", 0));
  };
  t["cat"] = [](const Call& c) -> Tensors { return {cat(c.all(), c.get<std::int64_t>("dim", 0))}; };
  t["stack"] = [](const Call& c) -> Tensors { return {stack(c.all(), c.get<std::int64_t>("dim", 0))}; };
  t["flip"] = [](const Call& c) -> Tensors { return {flip(c.in(0), c.dims("dims"))}; };
  t["repeat"] = [](const Call& c) -> Tensors { return {repeat(c.in(0), c.dims("repeats"))}; };
  t["tile"] = [](const Call& c) -> Tensors { return {tile(c.in(0), c.dims("dims"))}; };
  t["repeat_interleave"] = [](const Call& c) -> Tensors {
    const auto dim = c.has("dim") ? std::optional(c.integer("dim")) : std::nullopt;
    return {repeat_interleave(c.in(0), c.integer("repeats"), dim)};
  };
  t["diagonal"] = [](const Call& c) -> Tensors {
    return {diagonal(c.in(0), c.get<std::int64_t>("offset", 0), c.get<std::int64_t>("dim1", 0),
                     c.get<std::int64_t>("dim2", 1))};
  };
  t["narrow"] = [](const Call& c) -> Tensors {
    return {narrow(c.in(0), c.integer("dim"), c.integer("start"), c.integer("length"))};
  };
  t["select"] = [](const Call& c) -> Tensors {
    return {select(c.in(0), c.integer("dim"), c.integer("index"))};
  };
  t["chunk"] = [](const Call& c) -> Tensors {
    return chunk(c.in(0), c.integer("chunks"), c.get<std::int64_t>("dim", 0));
  };
  t["unbind"] = [](const Call& c) -> Tensors { return unbind(c.in(0), c.get<std::int64_t>("dim", 0)); };
  t["movedim"] = [](const Call& c) -> Tensors {
    return {movedim(c.in(0), c.dims("source"), c.dims("destination"))};
  };
  t["broadcast_to"] = [](const Call& c) -> Tensors { return {broadcast_to(c.in(0), c.dims("size"))}; };
  t["roll"] = [](const Call& c) -> Tensors { return {roll(c.in(0), c.dims("shifts"), c.dims("dims", {}))}; };
  t["pad"] = padded;
}

}  // namespace tessera::verify
