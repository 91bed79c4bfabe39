#include "verify/programs.h"

#include <functional>
#include <limits>

#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::verify {
namespace {

using nlohmann::json;

// What an operation's function sees of its call.
class Call {
 public:
  Call(const std::string& op, const Tensors& inputs, const json& args)
      : op_(op), inputs_(inputs), args_(args) {}

  const char* op() const { return op_.c_str(); }
  const Tensor& in(std::size_t i) const {
    const Tensor t = maybe(i);
    TS_CHECK(t.defined(), op(), "input {} is needed, {} given", i, inputs_.size());
    return inputs_[i];
  }
  Tensor maybe(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : Tensor(); }
  const Tensors& all() const { return inputs_; }

  // An argument that may be absent or null.
  bool has(const char* key) const { return args_.contains(key) && !args_.at(key).is_null(); }
  template <class T>
  T get(const char* key) const {
    TS_CHECK(has(key), op(), "argument \"{}\" is missing", key);
    try {
      return args_.at(key).get<T>();
    } catch (const json::exception&) {
      TS_FAIL(Usage, op(), "argument \"{}\" is {}, which is not of the kind it must be", key,
              args_.at(key).dump());
    }
  }
  template <class T>
  T get(const char* key, T otherwise) const {
    return has(key) ? get<T>(key) : otherwise;
  }
  std::int64_t integer(const char* key) const { return get<std::int64_t>(key); }
  // A list; a single number counts as a list of one.
  Dims dims(const char* key) const {
    if (has(key) && args_.at(key).is_number_integer()) return {integer(key)};
    const auto list = get<std::vector<std::int64_t>>(key);
    TS_CHECK(list.size() <= static_cast<std::size_t>(Dims::kMax), op(),
             "argument \"{}\" has {} entries, at most {} are allowed", key, list.size(), Dims::kMax);
    return Dims(list);
  }
  Dims dims(const char* key, const Dims& otherwise) const { return has(key) ? dims(key) : otherwise; }
  [[noreturn]] void lacks(const std::string& what) const {
    TS_FAIL(Unsupported, op(), "{} is not in this library", what);
  }

 private:
  const std::string& op_;
  const Tensors& inputs_;
  const json& args_;
};

using OpFunction = std::function<Tensors(const Call&)>;
using OpTable = std::map<std::string, OpFunction>;

OpFunction unary(Tensor (*f)(const Tensor&)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0))}; };
}
OpFunction binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.in(1))}; };
}
OpFunction reduction(Tensor (*f)(const Tensor&, const Dims&, bool)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.dims("dim", {}), c.get("keepdim", false))}; };
}
OpFunction along(Tensor (*f)(const Tensor&, std::int64_t)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.integer("dim"))}; };
}

void add_elementwise(OpTable& t) {
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&)>>{{"relu", relu},
                                                                                {"silu", silu},
                                                                                {"sigmoid", sigmoid},
                                                                                {"tanh", tanh},
                                                                                {"exp", exp},
                                                                                {"log", log},
                                                                                {"sqrt", sqrt},
                                                                                {"rsqrt", rsqrt},
                                                                                {"abs", abs},
                                                                                {"neg", neg},
                                                                                {"square", square},
                                                                                {"sin", sin},
                                                                                {"cos", cos},
                                                                                {"erf", erf},
                                                                                {"softplus", softplus},
                                                                                {"reciprocal", reciprocal}}) {
    t[name] = unary(f);
  }
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
    constexpr double kOpen = std::numeric_limits<double>::infinity();
    return {clamp(c.in(0), c.get("min", -kOpen), c.get("max", kOpen))};
  };
  t["pow_scalar"] = [](const Call& c) -> Tensors { return {pow(c.in(0), c.get<double>("exponent"))}; };
  t["add"] = [](const Call& c) -> Tensors { return {add(c.in(0), c.in(1))}; };
  t["sub"] = binary(sub);
  t["mul"] = binary(mul);
  t["div"] = binary(div);
  t["maximum"] = binary(maximum);
  t["minimum"] = binary(minimum);
  t["where"] = [](const Call& c) -> Tensors { return {where(c.in(0), c.in(1), c.in(2))}; };
}

Tensors attention(const Call& c) {
  AttentionOptions o;
  o.mask = c.maybe(3);
  o.is_causal = c.get("is_causal", false);
  if (c.has("scale")) o.scale = c.get<double>("scale");
  o.enable_gqa = c.get("enable_gqa", false);
  return {scaled_dot_product_attention(c.in(0), c.in(1), c.in(2), o)};
}

Tensors convolution(const Call& c,
                    Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&)) {
  ConvOptions o;
  o.stride = c.dims("stride", o.stride);
  o.padding = c.dims("padding", o.padding);
  o.dilation = c.dims("dilation", o.dilation);
  o.groups = c.get("groups", o.groups);
  const auto mode = c.get<std::string>("padding_mode", "zeros");
  if (mode != "zeros" && mode != "circular") c.lacks("padding_mode \"" + mode + "\"");
  o.padding_mode = mode == "circular" ? PaddingMode::Circular : PaddingMode::Zeros;
  return {f(c.in(0), c.in(1), c.maybe(2), o)};
}

void add_products(OpTable& t) {
  t["matmul"] = binary(matmul);
  t["linear"] = [](const Call& c) -> Tensors { return {linear(c.in(0), c.in(1), c.maybe(2))}; };
  t["conv1d"] = [](const Call& c) { return convolution(c, conv1d); };
  t["conv2d"] = [](const Call& c) { return convolution(c, conv2d); };
  t["conv3d"] = [](const Call& c) { return convolution(c, conv3d); };
  t["scaled_dot_product_attention"] = attention;
}

void add_reductions(OpTable& t) {
  t["sum"] = reduction(sum);
  t["mean"] = reduction(mean);
  t["amax"] = reduction(amax);
  t["amin"] = reduction(amin);
  t["var"] = [](const Call& c) -> Tensors {
    return {var(c.in(0), c.dims("dim", {}), c.get("correction", 1.0), c.get("keepdim", false))};
  };
  t["softmax"] = along(softmax);
  t["log_softmax"] = along(log_softmax);
  t["layer_norm"] = [](const Call& c) -> Tensors {
    return {layer_norm(c.in(0), c.dims("normalized_shape"), c.maybe(1), c.maybe(2), c.get("eps", 1e-5))};
  };
  t["mse_loss"] = [](const Call& c) -> Tensors {
    const std::map<std::string, Reduction> kinds{
        {"none", Reduction::None}, {"mean", Reduction::Mean}, {"sum", Reduction::Sum}};
    const auto kind = kinds.find(c.get<std::string>("reduction", "mean"));
    if (kind == kinds.end()) c.lacks("reduction \"" + c.get<std::string>("reduction") + "\"");
    return {mse_loss(c.in(0), c.in(1), kind->second)};
  };
}

Tensors padded(const Call& c) {
  const auto mode = c.get<std::string>("mode", "constant");
  if (mode != "constant" && mode != "circular") c.lacks("mode \"" + mode + "\"");
  return {pad(c.in(0), c.get<std::vector<std::int64_t>>("pad"),
              mode == "circular" ? PadMode::Circular : PadMode::Constant, c.get("value", 0.0))};
}

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
  t["squeeze"] = along(squeeze);
  t["expand"] = [](const Call& c) -> Tensors { return {expand(c.in(0), c.dims("sizes"))}; };
  t["slice"] = [](const Call& c) -> Tensors {
    return {slice(c.in(0), c.integer("dim"), c.get<std::int64_t>("start", 0),
                  c.get<std::int64_t>("end", INT64_MAX), c.get<std::int64_t>("step", 1))};
  };
  t["split"] = [](const Call& c) -> Tensors {
    return split(c.in(0), c.dims("sizes"), c.get<std::int64_t>("dim", 0));
  };
  t["cat"] = [](const Call& c) -> Tensors { return {cat(c.all(), c.get<std::int64_t>("dim", 0))}; };
  t["roll"] = [](const Call& c) -> Tensors { return {roll(c.in(0), c.dims("shifts"), c.dims("dims", {}))}; };
  t["pad"] = padded;
}

const OpTable& table() {
  static const OpTable whole = [] {
    OpTable t;
    add_elementwise(t);
    add_products(t);
    add_reductions(t);
    add_shapes(t);
    return t;
  }();
  return whole;
}

}  // namespace

bool has_op(const std::string& op) { return table().count(op) != 0; }

Tensors apply_op(const std::string& op, const Tensors& inputs, const json& args) {
  const auto found = table().find(op);
  if (found == table().end()) TS_FAIL(Unsupported, "tessera-verify", "this library has no op \"{}\"", op);
  return found->second(Call(op, inputs, args));
}

void run_program(const Case& c, std::map<std::string, Tensor>& values) {
  for (const Step& step : c.program) {
    Tensors inputs;
    for (const auto& name : step.in) inputs.push_back(name ? values.at(*name) : Tensor());
    const Tensors outputs = apply_op(step.op, inputs, step.args);
    TS_CHECK(outputs.size() == step.out.size(), "tessera-verify",
             "op \"{}\" gave {} outputs, the case names {}", step.op, outputs.size(), step.out.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) values[step.out[i]] = outputs[i];
  }
}

}  // namespace tessera::verify
