// The table behind programs.h: what an operation's function sees of its call, and the parts of the table by
// family of operations. Internal to verify/.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <type_traits>

#include "ops/ops.h"
#include "runtime/error.h"
#include "verify/json_text.h"
#include "verify/programs.h"

namespace tessera::verify {

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
  bool is_text(const char* key) const { return has(key) && args_.at(key).is_string(); }
  template <class T>
  T get(const char* key) const {
    TS_CHECK(has(key), op(), "argument \"{}\" is missing", key);
    const json& value = args_.at(key);
    try {
      if (!std::is_integral_v<T> || !is_fraction(value)) return value.get<T>();
    } catch (const json::exception&) {  // said below
    }
    TS_FAIL(Usage, op(), "argument \"{}\" is {}, which is not of the kind it must be", key, json_text(value));
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
    for (const json& value : args_.at(key))
      TS_CHECK(!is_fraction(value), op(), "argument \"{}\" is {}, whole numbers are needed", key,
               json_text(args_.at(key)));
    TS_CHECK(list.size() <= static_cast<std::size_t>(Dims::kMax), op(),
             "argument \"{}\" has {} entries, at most {} are allowed", key, list.size(), Dims::kMax);
    return Dims(list);
  }
  Dims dims(const char* key, const Dims& otherwise) const { return has(key) ? dims(key) : otherwise; }
  // One of the library's dtypes by PyTorch's name; none if the argument is absent.
  std::optional<DType> dtype() const {
    if (!has("dtype")) return {};
    return one_of<DType>("dtype", "",
                         {{"float64", DType::F64},
                          {"float32", DType::F32},
                          {"bfloat16", DType::BF16},
                          {"float16", DType::F16},
                          {"int64", DType::I64},
                          {"int32", DType::I32},
                          {"bool", DType::Bool}});
  }
  // A list whose entries may be null, which stands for `null`.
  Dims dims_or_null(const char* key, std::int64_t null) const {
    if (!has(key) || !args_.at(key).is_array()) return dims(key);
    json filled = args_.at(key);
    for (json& value : filled)
      if (value.is_null()) value = null;
    const json alone{{key, filled}};
    return Call(op_, inputs_, alone).dims(key);
  }
  // A name that stands for something; refuses others.
  template <class T>
  T one_of(const char* key, const char* otherwise, const std::map<std::string, T>& names) const {
    const auto name = get<std::string>(key, otherwise);
    const auto found = names.find(name);
    if (found != names.end()) return found->second;
    std::string allowed;
    for (const auto& known : names) allowed += (allowed.empty() ? "" : ", ") + known.first;
    TS_FAIL(Unsupported, op(), "{} \"{}\" is not in this library; allowed are {}", key, name, allowed);
  }
  [[noreturn]] void lacks(const std::string& what) const {
    TS_FAIL(Unsupported, op(), "{} is not in this library", what);
  }

 private:
  // Of a number that an integer shall be: 2.0 is no fraction, infinity counts as one.
  static bool is_fraction(const json& value) {
    return value.is_number_float() &&
           !(std::abs(value.get<double>()) < 9e15 && value.get<double>() == std::trunc(value.get<double>()));
  }

  const std::string& op_;
  const Tensors& inputs_;
  const json& args_;
};

using OpFunction = std::function<Tensors(const Call&)>;
using OpTable = std::map<std::string, OpFunction>;

inline OpFunction unary(Tensor (*f)(const Tensor&)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0))}; };
}
inline OpFunction binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.in(1))}; };
}
inline OpFunction reduction(Tensor (*f)(const Tensor&, const Dims&, bool)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.dims("dim", {}), c.get("keepdim", false))}; };
}
inline OpFunction along(Tensor (*f)(const Tensor&, std::int64_t)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.integer("dim"))}; };
}
// Those that take a dtype.
using Dtyped = std::optional<DType>;
inline OpFunction reduction(Tensor (*f)(const Tensor&, const Dims&, bool, Dtyped)) {
  return [f](const Call& c) -> Tensors {
    return {f(c.in(0), c.dims("dim", {}), c.get("keepdim", false), c.dtype())};
  };
}
inline OpFunction along(Tensor (*f)(const Tensor&, std::int64_t, Dtyped)) {
  return [f](const Call& c) -> Tensors { return {f(c.in(0), c.integer("dim"), c.dtype())}; };
}

// The parts of the table, by file.
void add_elementwise(OpTable& t);  // programs_elementwise.cpp
void add_products(OpTable& t);     // programs_products.cpp
void add_reductions(OpTable& t);   // programs_reductions.cpp
void add_shapes(OpTable& t);       // programs_shapes.cpp
void add_windows(OpTable& t);      // programs_windows.cpp: pooling, interpolation
void add_norms(OpTable& t);        // programs_norms.cpp
void add_losses(OpTable& t);       // programs_losses.cpp
void add_indexing(OpTable& t);     // programs_indexing.cpp
void add_points(OpTable& t);       // programs_points.cpp

}  // namespace tessera::verify
