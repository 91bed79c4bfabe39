#include <limits>

#include "ops/elementwise/unary_functions.h"
#include "verify/program_table.h"

namespace tessera::verify {

void add_elementwise(OpTable& t) {
  for (const auto& [name, f] : unary_functions()) t[name] = unary(f);
  t["gelu"] = [](const Call& c) -> Tensors {
    const auto kind = c.get<std::string>("approximate", "none");
    if (kind != "none" && kind != "tanh") c.lacks("approximate \"" + kind + "\"");
    return {gelu(c.in(0), kind == "tanh" ? GeluKind::Tanh : GeluKind::None)};
  };
  t["leaky_relu"] = [](const Call& c) -> Tensors {
    return {leaky_relu(c.in(0), c.get("negative_slope", 0.01))};
  };
  t["elu"] = [](const Call& c) -> Tensors { return {elu(c.in(0), c.get("alpha", 1.0))}; };
  t["clamp"] = [](const Call& c) -> Tensors {
    if (c.all().size() > 1) return {clamp(c.in(0), c.maybe(1), c.maybe(2))};
    TS_CHECK(c.has("min") || c.has("max"), c.op(), "neither min nor max is given, one of them is needed");
    constexpr double kOpen = std::numeric_limits<double>::infinity();
    return {clamp(c.in(0), c.get("min", -kOpen), c.get("max", kOpen))};
  };
  t["pow_scalar"] = [](const Call& c) -> Tensors { return {pow(c.in(0), c.get<double>("exponent"))}; };
  t["pow"] = [](const Call& c) -> Tensors {
    return {c.has("base") ? pow(c.get<double>("base"), c.in(0)) : pow(c.in(0), c.in(1))};
  };
  t["add"] = [](const Call& c) -> Tensors { return {add(c.in(0), c.in(1))}; };
  t["sub"] = binary([](const Tensor& a, const Tensor& b) { return sub(a, b); });
  t["mul"] = binary(mul);
  t["div"] = binary(div);
  t["maximum"] = binary(maximum);
  t["minimum"] = binary(minimum);
  t["where"] = [](const Call& c) -> Tensors { return {where(c.in(0), c.in(1), c.in(2))}; };
}

}  // namespace tessera::verify
