#include "nn/module.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace tessera::nn {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

Tensor find(const std::vector<NamedTensor>& list, const std::string& name, const char* what) {
  for (const NamedTensor& n : list)
    if (n.name == name) return n.tensor;
  std::string known;
  for (const NamedTensor& n : list) known += (known.empty() ? "" : ", ") + n.name;
  TS_FAIL(Usage, "Module", "no {} named '{}'; there are: {}", what, name, known.empty() ? "none" : known);
}

}  // namespace

Tensor Module::forward(const Tensor&) {
  TS_FAIL(Unsupported, "Module", "this module has no forward of one tensor");
}

void Module::check_name(const std::string& name) const {
  TS_CHECK(!name.empty() && name.find('.') == std::string::npos, "Module",
           "the name '{}' is empty or has a dot, which separates the names of nested modules", name);
  const auto taken = [&](const NamedTensor& n) { return n.name == name; };
  TS_CHECK(
      std::none_of(parameters_.begin(), parameters_.end(), taken) &&
          std::none_of(buffers_.begin(), buffers_.end(), taken) &&
          std::none_of(children_.begin(), children_.end(), [&](const auto& c) { return c.first == name; }),
      "Module", "the name '{}' is taken", name);
}

Tensor Module::register_parameter(const std::string& name, const Tensor& value) {
  check_name(name);
  if (!value.defined()) return value;
  Tensor t = value;
  t.set_requires_grad();
  parameters_.push_back({name, t});
  return t;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& value) {
  check_name(name);
  if (value.defined()) buffers_.push_back({name, value});
  return value;
}

void Module::register_module(const std::string& name, Module& child) {
  check_name(name);
  TS_CHECK(&child != this, "Module", "a module cannot be a part of itself");
  children_.emplace_back(name, &child);
}

void Module::collect(Kind kind, const std::string& prefix, std::vector<NamedTensor>& out) const {
  for (const NamedTensor& n : kind == Kind::Parameters ? parameters_ : buffers_)
    out.push_back({joined(prefix, n.name), n.tensor});
  for (const auto& [name, child] : children_) child->collect(kind, joined(prefix, name), out);
}

std::vector<NamedTensor> Module::collected(Kind kind) const {
  std::vector<NamedTensor> all;
  collect(kind, "", all);
  std::unordered_set<const TensorImpl*> seen;
  std::erase_if(all, [&](const NamedTensor& n) { return !seen.insert(n.tensor.impl().get()).second; });
  return all;
}

std::vector<NamedTensor> Module::named_parameters() const { return collected(Kind::Parameters); }
std::vector<NamedTensor> Module::named_buffers() const { return collected(Kind::Buffers); }

Tensors Module::parameters() const {
  Tensors list;
  for (NamedTensor& n : named_parameters()) list.push_back(std::move(n.tensor));
  return list;
}

std::vector<NamedTensor> Module::state() const {
  std::vector<NamedTensor> all = named_parameters();
  for (NamedTensor& n : named_buffers()) all.push_back(std::move(n));
  return all;
}

void Module::load_state(const std::vector<NamedTensor>& entries) {
  std::unordered_map<std::string, Tensor> given;
  for (const NamedTensor& e : entries)
    TS_CHECK(given.emplace(e.name, e.tensor).second, "load_state", "'{}' is given twice", e.name);
  const std::vector<NamedTensor> own = state();
  for (const NamedTensor& n : own) {
    const auto it = given.find(n.name);
    TS_CHECK(it != given.end() && it->second.defined(), "load_state", "'{}' is missing", n.name);
    const Tensor& t = it->second;
    TS_CHECK(t.sizes() == n.tensor.sizes() && t.spec() == n.tensor.spec(), "load_state",
             "'{}' has sizes {}, the module's {}, and both must be placed alike", n.name, t.sizes().str(),
             n.tensor.sizes().str());
  }
  if (given.size() != own.size())
    for (const NamedTensor& e : entries)
      TS_CHECK(std::any_of(own.begin(), own.end(), [&](const NamedTensor& n) { return n.name == e.name; }),
               "load_state", "'{}' is not a parameter or buffer of this module", e.name);
  for (const NamedTensor& n : own) n.tensor.local().copy_(given.at(n.name).local());
}

Tensor Module::parameter(const std::string& name) const {
  return find(named_parameters(), name, "parameter");
}
Tensor Module::buffer(const std::string& name) const { return find(named_buffers(), name, "buffer"); }

std::int64_t Module::num_parameters() const {
  std::int64_t n = 0;
  for (const NamedTensor& p : named_parameters()) n += p.tensor.numel();
  return n;
}

void Module::zero_grad() const {
  for (const NamedTensor& p : named_parameters()) p.tensor.zero_grad();
}

void Module::collect_modules(const std::string& prefix, std::vector<std::pair<std::string, Module*>>& out) {
  out.emplace_back(prefix, this);
  for (const auto& [name, child] : children_) child->collect_modules(joined(prefix, name), out);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  collect_modules("", all);
  return all;
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (const auto& [name, child] : children_) child->apply(f);
  f(*this);
}

void Module::train(bool on) {
  apply([on](Module& m) { m.training_ = on; });
}

void Module::to(DType dtype) {
  TS_CHECK(is_floating(dtype), "Module", "parameters can be f32, f64, bf16 or f16, given {}", name_of(dtype));
  for (const NamedTensor& n : state()) {
    if (!is_floating(n.tensor.dtype()) || n.tensor.dtype() == dtype) continue;
    n.tensor.impl()->local = n.tensor.local().to(dtype);
    n.tensor.zero_grad();
  }
}

void Module::to(Device device) {
  require_device("Module::to", device);
  for (const NamedTensor& n : state()) {
    if (n.tensor.device() == device) continue;
    n.tensor.impl()->local = n.tensor.local().to(device);
    n.tensor.zero_grad();
  }
}

void Module::initialize(std::uint64_t seed) {
  Generator generator(seed);
  apply([&](Module& m) { m.reset_parameters(generator); });
}

}  // namespace tessera::nn
