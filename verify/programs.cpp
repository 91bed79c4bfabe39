#include "verify/programs.h"

#include "verify/program_table.h"

namespace tessera::verify {
namespace {

const OpTable& table() {
  static const OpTable whole = [] {
    OpTable t;
    add_elementwise(t);
    add_products(t);
    add_reductions(t);
    add_shapes(t);
    add_windows(t);
    add_norms(t);
    add_losses(t);
    add_indexing(t);
    add_points(t);
    return t;
  }();
  return whole;
}

}  // namespace

std::set<std::string> op_names() {
  std::set<std::string> names;
  for (const auto& [name, function] : table()) names.insert(name);
  return names;
}

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
    TS_CHECK(outputs.size() >= step.out.size(), "tessera-verify",  // the last ones may go unnamed
             "op \"{}\" gave {} outputs, the case names {}", step.op, outputs.size(), step.out.size());
    for (std::size_t i = 0; i < step.out.size(); ++i) values[step.out[i]] = outputs[i];
  }
}

}  // namespace tessera::verify
