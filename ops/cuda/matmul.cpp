// Matrix products on the device. What cuBLASLt's layouts can say goes there; integers, products without a
// sum, crowds of small matrices that no single batch covers and sizes beyond 32 bits take a kernel of our
// own.
#include "ops/cpu/matmul.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/matmul_problem.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/library_log.h"
#include "ops/cuda/library_operands.h"
#include "ops/cuda/matmul_kernels.h"
#include "ops/cuda/precision.h"
#include "ops/cuda/register.h"
#include "ops/kernels.h"
#include "ops/matmul/linear_kernel.h"
#include "runtime/cuda/array_walk.h"

namespace tessera::cuda {
namespace {

// Calls of cuBLASLt for one product before a crowd of small matrices goes to our own kernel.
constexpr std::int64_t kManyCalls = 16;
constexpr std::int64_t kSmallProduct = std::int64_t{1} << 16;  // m n k

struct Strides {
  std::int64_t row = 0;
  std::int64_t col = 0;
};

// A product as pointers and strides: c = a b.
struct Problem {
  DType dtype = DType::F32;
  std::int64_t m = 0, n = 0, k = 0;
  Strides c, a, b;
  void* c_data = nullptr;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* bias = nullptr;
  std::int64_t bias_stride = 0;
  bool accumulate = false;
  BlasActivation activation = BlasActivation::None;
  void* given = nullptr;  // where what it is given is written, as c lies
  Walk<3> batch;          // c, a, b
};

// Strides without chance values in dims of size 1.
Strides strides_of(const Array& x) {
  const int n = x.dim();
  Strides s{x.stride(n - 2), x.stride(n - 1)};
  if (x.size(n - 1) == 1) s.col = s.row == 1 ? std::max<std::int64_t>(x.size(n - 2), 1) : 1;
  if (x.size(n - 2) == 1) s.row = s.col == 1 ? std::max<std::int64_t>(x.size(n - 1), 1) : 1;
  return s;
}

// Whether the rows of a matrix lie in memory one after another without overlap.
bool by_rows(std::int64_t cols, Strides s) { return s.col == 1 && s.row >= std::max<std::int64_t>(cols, 1); }
bool by_columns(std::int64_t rows, Strides s) {
  return s.row == 1 && s.col >= std::max<std::int64_t>(rows, 1);
}
bool is_matrix(std::int64_t rows, std::int64_t cols, Strides s) {
  return by_rows(cols, s) || by_columns(rows, s);
}

bool has_negative_stride(const Array& x) {
  return std::any_of(x.strides().begin(), x.strides().end(), [](std::int64_t s) { return s < 0; });
}
bool is_matrix(const Array& x) {
  return is_matrix(x.size(x.dim() - 2), x.size(x.dim() - 1), strides_of(x)) && !has_negative_stride(x);
}

// Batch dims move into m where b is the same for all of them and the rows of a and c continue across them.
// `sizes` and strides of c, a, b are of the batch dims, outermost first.
void fold(Problem& p, Dims& sizes, std::array<Dims, 3>& strides) {
  while (!sizes.empty()) {
    const int last = sizes.size() - 1;
    if (sizes[last] != 1) {
      Strides c = p.c;
      Strides a = p.a;
      if (p.m == 1) {
        c.row = strides[0][last];
        a.row = strides[1][last];
      }
      const bool continues = p.m == 1 || (strides[0][last] == c.row * p.m && strides[1][last] == a.row * p.m);
      const std::int64_t m = p.m * sizes[last];
      if (strides[2][last] != 0 || !continues || !by_rows(p.n, c) || !is_matrix(m, p.k, a)) return;
      p.m = m;
      p.c = c;
      p.a = a;
    }
    sizes.erase(last);
    for (Dims& s : strides) s.erase(last);
  }
}

Problem problem_of(const cpu::MatmulArgs& args) {
  const int n = args.c.dim();
  Problem p;
  p.dtype = args.c.dtype();
  p.m = args.c.size(n - 2);
  p.n = args.c.size(n - 1);
  p.k = args.a.size(n - 1);
  p.c = strides_of(args.c);
  p.a = strides_of(args.a);
  p.b = strides_of(args.b);
  p.c_data = args.c.raw();
  p.a_data = args.a.raw();
  p.b_data = args.b.raw();
  p.bias = args.bias.defined() ? args.bias.raw() : nullptr;
  p.bias_stride = args.bias.defined() ? args.bias.stride(0) : 0;
  p.accumulate = args.accumulate;
  const auto without_matrix = [&](Dims d) {
    d.erase(n - 1);
    d.erase(n - 2);
    return d;
  };
  Dims sizes = without_matrix(args.c.sizes());
  std::array<Dims, 3> strides{without_matrix(args.c.strides()), without_matrix(args.a.strides()),
                              without_matrix(args.b.strides())};
  fold(p, sizes, strides);
  p.batch =
      make_walk<3>(sizes.size(), sizes.begin(), {strides[0].begin(), strides[1].begin(), strides[2].begin()});
  return p;
}

void multiply_by_own_kernel(const Problem& p) {
  MatmulElements e;
  e.dtype = p.dtype;
  e.m = p.m;
  e.n = p.n;
  e.k = p.k;
  e.c_row = p.c.row;
  e.c_col = p.c.col;
  e.a_row = p.a.row;
  e.a_col = p.a.col;
  e.b_row = p.b.row;
  e.b_col = p.b.col;
  e.c = p.c_data;
  e.a = p.a_data;
  e.b = p.b_data;
  e.bias = p.bias;
  e.bias_stride = p.bias_stride;
  e.accumulate = p.accumulate;
  e.batch = p.batch;
  multiply_elements(e, current_stream());
  check_launch("matmul");
}

// The dim of the batch that one call of cuBLASLt covers, and how many calls there are.
struct Batching {
  int dim = -1;
  std::int64_t size = 1;
  std::int64_t calls = 1;
};
Batching batching_of(const Walk<3>& batch) {
  Batching b;
  for (int d = 0; d < batch.dims; ++d)
    if (batch.size[d] > b.size) b = {d, batch.size[d], 1};
  b.calls = b.size > 0 ? batch.numel / b.size : 0;
  return b;
}

bool is_large(const Problem& p, const Batching& batching) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t n : {p.m, p.n, p.k, batching.size})
    if (n > kMost) return true;
  for (const Strides& s : {p.c, p.a, p.b})
    if (std::max(s.row, s.col) > kMost) return true;
  return false;
}

// Where our own kernel is the right one. The operands' strides do not matter.
bool takes_own_kernel(const Problem& p) {
  if (!is_floating(p.dtype) || p.k == 0) return true;
  const Batching batching = batching_of(p.batch);
  return is_large(p, batching) || (batching.calls > kManyCalls && p.m * p.n * p.k <= kSmallProduct);
}

// The largest power of two up to 256 that the pointer and all steps from it are multiples of.
std::int64_t alignment_of(const void* data, std::int64_t element, const Walk<3>& batch, int operand) {
  auto bits = reinterpret_cast<std::uintptr_t>(data) | 256U;
  for (int d = 0; d < batch.dims; ++d)
    bits |= static_cast<std::uintptr_t>(batch.stride[operand][d] * element);
  return static_cast<std::int64_t>(bits & (~bits + 1U));
}

// One operand of d = p q, read as columns where it lies so, else as the transpose.
BlasLayout layout_of(Strides s, std::int64_t rows, std::int64_t batch_stride, std::int64_t alignment) {
  const bool columns = by_columns(rows, s);
  return {columns ? s.col : s.row, batch_stride, alignment, !columns};
}

// The product of the transposes, where c lies by rows: its columns are then rows of c, and the bias runs
// along them.
Problem transposed(Problem p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(p.a_data, p.b_data);
  for (Strides* s : {&p.c, &p.a, &p.b}) std::swap(s->row, s->col);
  for (int d = 0; d < p.batch.dims; ++d) std::swap(p.batch.stride[1][d], p.batch.stride[2][d]);
  return p;
}

BlasShape shape_of(const Problem& p, const Batching& batching) {
  const std::int64_t element = size_of(p.dtype);
  const auto step = [&](int operand) { return batching.dim < 0 ? 0 : p.batch.stride[operand][batching.dim]; };
  BlasShape s;
  s.dtype = p.dtype;
  s.m = p.m;
  s.n = p.n;
  s.k = p.k;
  s.batch = batching.size;
  s.d = layout_of(p.c, p.m, step(0), alignment_of(p.c_data, element, p.batch, 0));
  s.p = layout_of(p.a, p.m, step(1), alignment_of(p.a_data, element, p.batch, 1));
  s.q = layout_of(p.b, p.k, step(2), alignment_of(p.b_data, element, p.batch, 2));
  s.bias = p.bias != nullptr;
  s.accumulate = p.accumulate;
  s.tf32 = tf32_allowed();
  s.activation = p.activation;
  s.given_ld = p.given == nullptr ? 0 : s.d.ld;
  return s;
}

// False: cuBLASLt has no algorithm for this shape. c lies by columns; a bias runs along m.
bool multiply_by_columns(const Problem& p) {
  const Batching batching = batching_of(p.batch);
  const BlasShape shape = shape_of(p, batching);
  BlasPlan* plan = blas_plan(shape);
  if (plan == nullptr) return false;
  const Array workspace = Array::empty({workspace_bytes(*plan)}, DType::Bool, Device::Cuda);
  Walk<3> calls = p.batch;  // the batch without the dim that a call covers
  if (batching.dim >= 0) {
    calls.size[batching.dim] = 1;
    for (auto& stride : calls.stride) stride[batching.dim] = 0;
  }
  const std::int64_t element = size_of(p.dtype);
  for (std::int64_t i = 0; i < batching.calls; ++i) {
    std::int64_t at[3];
    calls.offsets(i, at);
    LibraryLog::note(shape);
    run_blas(
        *plan,
        {static_cast<char*>(p.c_data) + at[0] * element, static_cast<const char*>(p.a_data) + at[1] * element,
         static_cast<const char*>(p.b_data) + at[2] * element, p.bias, p.given},
        workspace.raw(), current_stream());
  }
  return true;
}

// The result by way of dense memory, where c's strides say no matrix.
void multiply_through_copy(const cpu::MatmulArgs& args);

void multiply_by_library(cpu::MatmulArgs args) {
  if (!is_matrix(args.a)) args.a = args.a.clone();
  if (!is_matrix(args.b)) args.b = args.b.clone();
  args.bias = dense_for_library(args.bias);
  if (!is_matrix(args.c)) return multiply_through_copy(args);
  Problem p = problem_of(args);
  // One column lies by rows as well, and rows take a bias beside what is there.
  if (p.n == 1 && p.c.row == 1 && p.bias != nullptr && p.accumulate) p.c.col = 1;
  const bool rows = by_rows(p.n, p.c);
  if (rows) {
    if (multiply_by_columns(transposed(p))) return;
    if (p.bias == nullptr || p.accumulate) return multiply_by_own_kernel(p);
  }
  // By columns a bias would run across them, and by rows it may be what cuBLASLt does not offer: it is what
  // the sum starts from.
  if (p.bias != nullptr && p.accumulate) return multiply_through_copy(args);
  if (p.bias != nullptr) {
    args.c.copy_(args.bias);
    p.bias = nullptr;
    p.accumulate = true;
  }
  if (!multiply_by_columns(rows ? transposed(p) : p)) multiply_by_own_kernel(p);
}

void multiply_through_copy(const cpu::MatmulArgs& args) {
  cpu::MatmulArgs dense = args;
  dense.c = Array::empty(args.c.sizes(), args.c.dtype(), Device::Cuda);
  if (args.accumulate) dense.c.copy_(args.c);
  multiply_by_library(dense);
  args.c.copy_(dense.c);
}

void matmul_cuda(const cpu::MatmulArgs& args) {
  cpu::check_matmul(args);
  if (args.c.numel() == 0) return;
  const Problem p = problem_of(args);
  if (takes_own_kernel(p)) return multiply_by_own_kernel(p);
  multiply_by_library(args);
}

// With the activation in cuBLASLt's epilogue. False: it does not offer that one, in this type or for operands
// that lie so.
bool linear_in_one(const cpu::LinearArgs& args) {
  const bool relu = args.activation == cpu::Activation::Relu && !args.z.defined();
  if ((!relu && args.activation != cpu::Activation::GeluTanh) || args.x.size(1) == 0) return false;
  if (!is_matrix(args.x) || !is_matrix(args.w) || !args.y.is_contiguous()) return false;
  if (args.z.defined() && (!args.z.is_contiguous() || args.z.size(1) % 8 != 0 || !is_library_aligned(args.z)))
    return false;
  // Held until the product is launched: its workspace must not be this memory.
  const Array bias = dense_for_library(args.bias);
  Problem p = problem_of({args.y, args.x, args.w, bias});
  if (!by_rows(p.n, p.c) || is_large(p, {})) return false;
  p.activation = relu ? BlasActivation::Relu : BlasActivation::GeluTanh;
  if (args.z.defined()) p.given = args.z.raw();
  return multiply_by_columns(transposed(p));
}

void linear_cuda(const cpu::LinearArgs& args) {
  const Array& given = args.z.defined() ? args.z : args.y;
  const cpu::MatmulArgs product{given, args.x, args.w, args.bias};
  cpu::check_matmul(product);
  if (args.y.numel() == 0 || linear_in_one(args)) return;
  matmul_cuda(product);
  if (args.activation != cpu::Activation::None)
    kernels::unary(Device::Cuda, {args.y, given, cpu::forward_op(args.activation)});
}

}  // namespace

void register_products() {
  kernels::matmul.set(Device::Cuda, &matmul_cuda);
  kernels::linear.set(Device::Cuda, &linear_cuda);
}

}  // namespace tessera::cuda
