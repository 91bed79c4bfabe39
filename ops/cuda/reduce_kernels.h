// Reductions on the device: rows of elements at any strides, one block a row or several.
#pragma once
#include "runtime/cuda/combine.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

struct ReduceElements {
  Walk<2> rows;   // the dims that stay: out, x
  Walk<1> inner;  // the dims that are reduced, of x
  Elements out;
  Elements x;
  Combine kind = Combine::Sum;
};
// Rows are cut into pieces when there are too few to fill the device; `pieces` of `partial` values each, 8
// bytes per piece and row (double for floating types, else i64). 1: `partial` is not needed.
std::int64_t reduce_pieces(const ReduceElements& args);
void reduce_elements(const ReduceElements& args, std::int64_t pieces, void* partial, StreamHandle stream);

// out (f64) = sum of |x|^power, in the same way; partial: doubles.
struct PowerElements {
  Walk<2> rows;
  Walk<1> inner;
  double* out = nullptr;
  Elements x;
  double power = 2;
};
std::int64_t reduce_pieces(const PowerElements& args);
void power_elements(const PowerElements& args, std::int64_t pieces, double* partial, StreamHandle stream);

struct MomentElements {
  Walk<3> rows;   // mean, m2, x
  Walk<1> inner;  // of x
  Elements mean;
  Elements m2;  // as mean
  Elements x;
};
void moment_elements(const MomentElements& args, StreamHandle stream);

// ops/cpu/prod_gradient.h; `zeros` lies on the device.
struct ProdGradientElements {
  Walk<4> rows;   // dx, x, y, dy
  Walk<2> inner;  // dx, x
  Elements dx, x, y, dy;
  const std::int64_t* zeros = nullptr;
  const double* rest = nullptr;  // lies as y; null: ones
  bool whole = false;
  bool side_by_side = false;  // neighbouring rows are neighbours in memory
};
void prod_gradient_elements(const ProdGradientElements& args, StreamHandle stream);

}  // namespace tessera::cuda
