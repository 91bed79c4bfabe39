// Reductions. `dims` empty: all dims. Names and semantics are PyTorch's.
//
// Sharded: over cut dims sum, mean, amax, amin, prod, any and all give Partial (no message until someone
// needs the value). The others send a few numbers per row, in one message: var and std mean and squared
// deviations, logsumexp largest value and sum, norms a sum of powers (orders 0 and 1 and the infinite ones:
// nothing), argmax and argmin a value and its index, cumsum the sums of the parts.
//
// `dtype`, where one is given: what the input is cast to first, and what the result is. Gradients return in
// the input's own. (Sums that are owed are cast term by term to what holds them, and made first otherwise.)
#pragma once
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

// Bools and I32 are summed, and multiplied, in I64, which they give without a dtype.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
// Floating tensors, or any with a floating dtype. Over nothing: NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);  // ties share the gradient
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {});
// What is not 0 counts as true. Bool, without gradient; any over nothing is false, all is true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});  // i64

Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1.0, bool keepdim = false);
// {variance, mean}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1.0,
                                   bool keepdim = false);
// Beside a using-directive its full name is needed: tessera::std(x).
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1.0, bool keepdim = false);
// log Σ exp(x), shifted by the largest value.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// (Σ |x|^p)^(1/p) as torch.linalg.vector_norm; p 0 counts what is not 0, ±infinity are the extrema of |x|.
// Sums run in double. The gradient at 0 is 0.
Tensor vector_norm(const Tensor& x, double p = 2.0, const Dims& dims = {}, bool keepdim = false);
// The same.
Tensor norm(const Tensor& x, double p = 2.0, const Dims& dims = {}, bool keepdim = false);

// Index (i64) of the largest (smallest) element, the lowest one on ties; NaN wins. Without a dim: in the
// flattened tensor. No gradient.
Tensor argmax(const Tensor& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);

// Running sums along a dim, kept in double; bools and integers give I64 without a dtype.
Tensor cumsum(const Tensor& x, std::int64_t dim, std::optional<DType> dtype = {});

// x summed down to `sizes` (which broadcast to x's): the gradient of broadcasting.
Tensor sum_to_size(const Tensor& x, const Dims& sizes);

}  // namespace tessera
