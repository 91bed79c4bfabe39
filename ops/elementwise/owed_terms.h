// A sum that ranks owe each other, times a factor. Internal to ops/.
//
// A product of terms is a term of the product, except where a factor is infinite (or a divisor 0): there a
// term that is 0, or has the other sign, makes NaN of what is infinite once the terms are summed.
#pragma once
#include <optional>

#include "ops/cpu/pointwise_ops.h"
#include "ops/op.h"

namespace tessera {

// What a product or quotient of `a` and `b` may leave owed. On a device nothing looks into the factor, since
// the host would have to wait for it: its sums are made first.
Linearity owed_through(cpu::BinaryOp kernel, const Tensor& a, const Tensor& b);
// On the CPU as on a device, so that both send the same messages. Takes effect for calls that no plan is kept
// of.
bool makes_sums_first();
void set_makes_sums_first(bool on);

// The sum in the place of one operand's terms.
struct OwedSum {
  std::size_t input = 0;  // 0 or 1
  Array sum;
  bool elsewhere = false;  // another rank has the result, and this one holds zeros
};
// For the local function of a product or quotient: where the factor asks for it, the terms' sum over the
// ranks that owe it. One all-reduce among them; they have the same factor, so they decide alike.
std::optional<OwedSum> sum_owed_terms(const LocalCall& l, cpu::BinaryOp kernel);

// x with the sums made that it owes, for operations that would otherwise make them more than once, or of
// more.
Tensor with_sums_made(const Tensor& x);

}  // namespace tessera
