#include "verify/program_table.h"

namespace tessera::verify {
namespace {

Reduction reduction_of(const Call& c) {
  const std::map<std::string, Reduction> kinds{
      {"none", Reduction::None}, {"mean", Reduction::Mean}, {"sum", Reduction::Sum}};
  const auto kind = kinds.find(c.get<std::string>("reduction", "mean"));
  if (kind == kinds.end()) c.lacks("reduction \"" + c.get<std::string>("reduction") + "\"");
  return kind->second;
}

}  // namespace

void add_losses(OpTable& t) {
  t["mse_loss"] = [](const Call& c) -> Tensors { return {mse_loss(c.in(0), c.in(1), reduction_of(c))}; };
}

}  // namespace tessera::verify
