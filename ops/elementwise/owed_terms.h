// A sum that ranks owe each other, times a factor: element-wise, in matrix products and in convolutions.
// Internal to ops/.
//
// A product of terms is a term of the product, except where a factor is infinite (or a divisor 0): there a
// term that is 0, or has the other sign, makes NaN of what is infinite once the terms are summed.
//
// Along the mesh axes that owe the sum the factor is whole (see Linearity::Each), so the ranks that would
// make the sum all see the same factor and decide alike, each by itself.
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
// ranks that owe it. One all-reduce among them.
std::optional<OwedSum> sum_owed_terms(const LocalCall& l, cpu::BinaryOp kernel);

// Whether this rank is the one, of those that owe the sum that input 0 is a term of, on which a number counts
// that is added to the sum.
bool counts_here(const LocalCall& l);

// Inputs 0 and 1 for the local function of an operation that is linear in each of the two, such as a matrix
// product. Where one owes a sum and the other is infinite somewhere, the terms are replaced by others: the
// sum on one of the ranks that owe it, zeros on the rest, whose factor is zeros too.
class Factors {
 public:
  // `halo`: what else of input 1 this rank reads, if anything; it is replaced likewise.
  explicit Factors(const LocalCall& l, Array* halo = nullptr);
  const Array& operator[](std::size_t i) const { return made_.empty() ? given_[i] : made_[i]; }

  static bool owed(const LocalCall& l);

 private:
  std::span<const Array> given_;
  std::vector<Array> made_;
};

// The inputs of a product whose plan asks no owed_through: on a device (or as on one) with their sums made.
std::array<Tensor, 2> factors_to_call(const Tensor& a, const Tensor& b);
// x with the sums made that it owes, for operations that would otherwise make them more than once, or of
// more.
Tensor with_sums_made(const Tensor& x);

}  // namespace tessera
