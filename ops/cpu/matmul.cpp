#include "ops/cpu/matmul.h"

#include "ops/cpu/matmul_problem.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr double kTinyFlops = 2e4;  // below this a library call costs more than the product

// Strides that describe the same elements without chance values in dims of size 1.
MatrixLayout tidy(std::int64_t rows, std::int64_t cols, MatrixLayout s) {
  if (cols == 1) s.col = 1;
  if (rows == 1) s.row = s.col == 1 ? std::max<std::int64_t>(cols, 1) : 1;
  return s;
}
bool is_matrix(std::int64_t rows, std::int64_t cols, MatrixLayout s) {
  return (s.col == 1 && s.row >= cols) || (s.row == 1 && s.col >= rows);
}

MatrixLayout layout_of(const Array& x) {
  const int n = x.dim();
  return tidy(x.size(n - 2), x.size(n - 1), {x.stride(n - 2), x.stride(n - 1)});
}
Array with_matrix_layout(const Array& x) {
  const int n = x.dim();
  return is_matrix(x.size(n - 2), x.size(n - 1), layout_of(x)) ? x : x.contiguous();
}

Dims batch_strides(const Array& x) {
  Dims s = x.strides();
  s.erase(s.size() - 1);
  s.erase(s.size() - 1);
  return s;
}

// Moves batch dims into m where b is the same for all of them and the rows of a and c continue across them:
// one large product instead of many.
void fold(MatmulProblem& p, Dims& sizes, Dims& c, Dims& a, Dims& b) {
  while (!sizes.empty()) {
    const int last = sizes.size() - 1;
    if (sizes[last] != 1) {
      MatrixLayout la = p.a;
      MatrixLayout lc = p.c;
      if (p.m == 1) {
        la.row = a[last];
        lc.row = c[last];
      }
      const std::int64_t m = p.m * sizes[last];
      const bool continues = p.m == 1 || (a[last] == la.row * p.m && c[last] == lc.row * p.m);
      if (b[last] != 0 || !continues || !is_matrix(m, p.k, la) || !is_matrix(m, p.n, lc)) return;
      p.m = m;
      p.a = la;
      p.c = lc;
    }
    for (Dims* d : {&sizes, &c, &a, &b}) d->erase(last);
  }
}

MatmulProblem problem_of(const MatmulArgs& args) {
  const Array& c = args.c;
  const int n = c.dim();
  MatmulProblem p;
  p.dtype = c.dtype();
  p.m = c.size(n - 2);
  p.n = c.size(n - 1);
  p.k = args.a.size(n - 1);
  p.c = layout_of(c);
  p.a = layout_of(args.a);
  p.b = layout_of(args.b);
  p.c_data = static_cast<char*>(c.raw());
  p.a_data = static_cast<const char*>(args.a.raw());
  p.b_data = static_cast<const char*>(args.b.raw());
  p.bias = args.bias.defined() ? args.bias.raw() : nullptr;
  p.accumulate = args.accumulate;
  Dims sizes = c.sizes();
  sizes.erase(n - 1);
  sizes.erase(n - 2);
  Dims sc = batch_strides(c);
  Dims sa = batch_strides(args.a);
  Dims sb = batch_strides(args.b);
  fold(p, sizes, sc, sa, sb);
  p.batch = make_loop(sizes, {&sc, &sa, &sb});
  return p;
}

// The product of the transposes, for an output that lies column by column.
void transpose(MatmulProblem& p) {
  std::swap(p.m, p.n);
  std::swap(p.a_data, p.b_data);
  const MatrixLayout a = p.a;
  p.a = p.b.transposed();
  p.b = a.transposed();
  p.c = p.c.transposed();
  std::swap(p.batch.strides[1], p.batch.strides[2]);
}

void matmul_through_float(const MatmulArgs& args) {
  MatmulArgs wide;
  wide.c = args.accumulate ? args.c.to(DType::F32) : Array::empty(args.c.sizes(), DType::F32);
  wide.a = args.a.to(DType::F32);
  wide.b = args.b.to(DType::F32);
  if (args.bias.defined()) wide.bias = args.bias.to(DType::F32);
  wide.accumulate = args.accumulate;
  matmul(wide);
  args.c.copy_(wide.c);
}

void matmul_through_copy(const MatmulArgs& args) {
  MatmulArgs dense = args;
  dense.c = Array::empty(args.c.sizes(), args.c.dtype());
  if (args.accumulate) dense.c.copy_(args.c);
  matmul(dense);
  args.c.copy_(dense.c);
}

}  // namespace

void check_matmul(const MatmulArgs& args) {
  const Array& c = args.c;
  const Array& a = args.a;
  const Array& b = args.b;
  const int n = c.dim();
  bool fits = n >= 2 && a.dim() == n && b.dim() == n;
  for (int d = 0; fits && d + 2 < n; ++d) fits = a.size(d) == c.size(d) && b.size(d) == c.size(d);
  fits = fits && a.size(n - 2) == c.size(n - 2) && b.size(n - 1) == c.size(n - 1) &&
         a.size(n - 1) == b.size(n - 2);
  TS_CHECK(fits, "matmul",
           "{} @ {} into {}; [..., M, K] @ [..., K, N] into [..., M, N] with equal batch sizes is needed",
           a.sizes().str(), b.sizes().str(), c.sizes().str());
  TS_CHECK(a.dtype() == c.dtype() && b.dtype() == c.dtype(), "matmul",
           "types {} @ {} into {}; they must be equal", name_of(a.dtype()), name_of(b.dtype()),
           name_of(c.dtype()));
  TS_CHECK(c.dtype() != DType::Bool, "matmul", "takes floating and integer tensors, given bool");
  if (!args.bias.defined()) return;
  TS_CHECK(args.bias.dim() == 1 && args.bias.size(0) == c.size(n - 1) && args.bias.dtype() == c.dtype(),
           "matmul", "bias {} {} for an output {} {}; [N] of the output's type is needed",
           name_of(args.bias.dtype()), args.bias.sizes().str(), name_of(c.dtype()), c.sizes().str());
}

void matmul(const MatmulArgs& args) {
  check_matmul(args);
  if (args.c.numel() == 0) return;
  if (args.c.dtype() == DType::F16) return matmul_through_float(args);
  MatmulArgs usable = args;
  if (args.bias.defined()) usable.bias = args.bias.contiguous();
  const bool library = args.c.dtype() == DType::F32 || args.c.dtype() == DType::BF16;
  MatmulProblem p = problem_of(usable);
  if (!library || (p.dtype == DType::F32 && p.flops() < kTinyFlops)) return matmul_own(p);
  if (p.k == 0) return p.dtype == DType::F32 ? matmul_own(p) : matmul_through_float(args);

  usable.a = with_matrix_layout(args.a);
  usable.b = with_matrix_layout(args.b);
  p = problem_of(usable);
  const bool by_columns = p.c.col != 1 && p.c.row == 1 && !args.bias.defined();
  if (by_columns) transpose(p);
  if (!is_matrix(p.m, p.n, p.c) || p.c.col != 1) return matmul_through_copy(usable);
  if (matmul_onednn(p)) return;
  if (p.dtype == DType::BF16) return matmul_through_float(usable);
  matmul_own(p);
}

}  // namespace tessera::cpu
