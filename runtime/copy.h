// Strided copies, fills and sums: the data movement that everything else is built on.
//
// These are raw: both operands have the same sizes (broadcast with Array::expand before), nothing is bumped,
// and operands must not overlap unless they are the same view. Array::copy_ and Array::fill_ are the careful
// versions. Large ones run on thread_count() threads. On the meta device they do nothing.
#pragma once
#include "runtime/array.h"
#include "runtime/kernel.h"

namespace tessera {

// dst = src for any pair of dtypes and any strides; dst may not have stride 0 along a dim of size 2 or more.
// To Bool: value != 0. To integers: towards zero. To BF16 and F16: to nearest even, by way of float.
void copy_strided(const Array& dst, const Array& src);
// The same of a box of either array, which begins at `dst_at` and `src_at`: what copies many small boxes pays
// more for views than for their elements. Boxes lie inside their arrays; one dtype and one device.
void copy_box(const Array& dst, const Dims& dst_at, const Array& src, const Dims& src_at, const Dims& extent);
// dst = value, converted to dst's dtype.
void fill(const Array& dst, double value);
// dst += src; for Bool: or. A src of another dtype is converted to dst's first. BF16 and F16 add in float.
void add_into(const Array& dst, const Array& src);

// True if the two arrays' elements lie in address ranges that meet (host memory only).
bool may_overlap(const Array& a, const Array& b);
// True if both are the same elements in the same order.
bool same_view(const Array& a, const Array& b);

// Seams for other backends. A copy between devices goes to the one that is not the CPU.
extern Kernel<void(const Array&, const Array&)> copy_kernel;
extern Kernel<void(const Array&, double)> fill_kernel;
extern Kernel<void(const Array&, const Array&)> add_into_kernel;  // same dtypes

}  // namespace tessera
