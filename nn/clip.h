#pragma once
#include "autograd/tensor.h"

namespace tessera::optim {

// A norm that was asked for. On a device it may still be on its way: reading it waits, leaving it unread does
// not.
class GradNorm {
 public:
  explicit GradNorm(Array value) : value_(std::move(value)) {}
  double value() const { return value_.at(0); }
  operator double() const { return value(); }  // NOLINT(google-explicit-constructor): it is a number

 private:
  Array value_;  // F64, one element
};

// The 2-norm of all gradients together, as one vector of the *global* tensors. Collective where gradients are
// owed or cut (one sum per mesh and set of cut axes); parameters without a gradient count as zero.
double grad_norm(const Tensors& params);

// What clipping to max_norm multiplies gradients with: max_norm / norm where the norm is larger, else 1; 1
// too where the norm is not finite. Where the gradients are; nothing waits for a device.
struct ClipFactor {
  GradNorm norm;
  Array factor;  // F64, one element
};
ClipFactor clip_factor(const char* op, const Tensors& params, double max_norm);  // op: for errors

// Scales all gradients by max_norm / norm where the norm is larger than max_norm; returns the norm before.
// A norm that is not finite is returned and the gradients stay as they are.
GradNorm clip_grad_norm_(const Tensors& params, double max_norm);

}  // namespace tessera::optim
