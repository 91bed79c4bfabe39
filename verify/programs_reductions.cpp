#include <limits>

#include "verify/program_table.h"

namespace tessera::verify {

namespace {

OpFunction index_of(Tensor (*f)(const Tensor&, std::optional<std::int64_t>, bool)) {
  return [f](const Call& c) -> Tensors {
    const std::optional<std::int64_t> dim =
        c.has("dim") ? std::optional<std::int64_t>(c.integer("dim")) : std::nullopt;
    return {f(c.in(0), dim, c.get("keepdim", false))};
  };
}

// A number, or "inf" and "-inf", which JSON cannot say.
double order(const Call& c) {
  const json p = c.get<json>("p");
  if (!p.is_string()) return c.get<double>("p");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return p == "-inf" ? -kInfinity : kInfinity;
}

}  // namespace

void add_reductions(OpTable& t) {
  t["sum"] = reduction(sum);
  t["mean"] = reduction(mean);
  t["amax"] = reduction(amax);
  t["amin"] = reduction(amin);
  t["var"] = [](const Call& c) -> Tensors {
    return {var(c.in(0), c.dims("dim", {}), c.get("correction", 1.0), c.get("keepdim", false))};
  };
  t["std"] = [](const Call& c) -> Tensors {
    return {std(c.in(0), c.dims("dim", {}), c.get("correction", 1.0), c.get("keepdim", false))};
  };
  t["logsumexp"] = reduction(logsumexp);
  t["norm"] = [](const Call& c) -> Tensors {
    const double p = c.has("p") ? order(c) : 2.0;
    return {norm(c.in(0), p, c.dims("dim", {}), c.get("keepdim", false))};
  };
  t["prod"] = reduction(prod);
  t["any"] = reduction(any);
  t["all"] = reduction(all);
  t["count_nonzero"] = [](const Call& c) -> Tensors { return {count_nonzero(c.in(0), c.dims("dim", {}))}; };
  t["argmax"] = index_of(argmax);
  t["argmin"] = index_of(argmin);
  t["cumsum"] = along(cumsum);
  t["softmax"] = along(softmax);
  t["log_softmax"] = along(log_softmax);
}

}  // namespace tessera::verify
