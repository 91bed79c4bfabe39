// Matrix products.
//
// Sharded: rows, columns and batch dims stay where they are; a cut contraction gives Partial (no message);
// operands cut in ways that do not go together are re-sharded, the cheaper one.
#pragma once
#include "autograd/tensor.h"
#include "ops/cpu/norm_activation.h"

namespace tessera {

// torch.matmul: any dims >= 1, batch dims broadcast. Operands of one dtype, as in PyTorch; not bool.
Tensor matmul(const Tensor& a, const Tensor& b);
// x [..., in], w [out, in], b [out] or what broadcasts to the result or undefined -> [..., out]; w [in],
// b [] -> [...]. Cut leading dims stay cut (no message); the gradients of w and b are then Partial.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = Tensor());
// An activation may follow, on the CPU after every 1024 rows, with the numbers of gelu(linear(x, w, b)); the
// library of a device, which has ReLU and GELU by tanh, may round otherwise, and bfloat16 once less.
// What the activation is given is kept for backward, but for Relu, whose result tells as much.
using cpu::Activation;  // None, Relu, Silu, Gelu, GeluTanh
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation);
// x [..., in] w: [in, out] (transposed: w is [out, in]) without bias; the pieces that linear's gradients are
// made of.
Tensor linear_product(const Tensor& x, const Tensor& w, bool transposed);
// Σ over leading dims of a[..., m] b[..., n] -> [m, n].
Tensor outer_product(const Tensor& a, const Tensor& b);

}  // namespace tessera
