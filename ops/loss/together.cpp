#include "ops/loss/together.h"

#include "ops/elementwise/array_math.h"
#include "ops/reduce/groups.h"
#include "runtime/environment.h"

namespace tessera {

Array numbers_of_all(const ShardSpec* spec, unsigned mask, const Array& mine) {
  return spec == nullptr || mask == 0 ? mine.unsqueeze(0) : gather_over(*spec, mask, mine);
}

bool refuse_together(const ShardSpec* spec) { return spec != nullptr && spec->mesh().comm().checks_calls(); }

bool refuses_values(Device device, const ShardSpec* spec) {
  if (device == Device::Cpu) return true;
  if (spec != nullptr) return spec->mesh().comm().checks_calls();
  static const bool asked = environment_switch("TESSERA_CHECK_CALLS", false);
  return asked;
}

Array nan_if_any(const Array& faults) {
  const Array sum = array_reduce(cpu::ReduceKind::Sum, faults, {0});
  // The root of -0 is -0, of anything below NaN.
  return array_unary(cpu::UnaryOp::Sqrt, array_unary(cpu::UnaryOp::Neg, sum));
}

}  // namespace tessera
