#include "emulated/cublaslt_product.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <type_traits>
#include <vector>

#include "emulated/mutation.h"
#include "emulated/tf32.h"
#include "runtime/dtype.h"

namespace tessera::emulated {
namespace {

bool is_described(const MatrixLayout& l) {
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW) return false;
  const std::uint64_t least = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
  return l.rows > 0 && l.cols > 0 && l.ld > 0 && static_cast<std::uint64_t>(l.ld) >= least && l.batch >= 1;
}

// The types that are multiplied: double; float, bf16 and f16 with float sums.
bool types_fit(const Product& p) {
  const std::int32_t type = p.a.type;
  const bool wide = type == CUDA_R_64F;
  if (p.b.type != type || p.c.type != type || p.d.type != type) return false;
  if (!wide && type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F) return false;
  if (p.desc.scale != (wide ? CUDA_R_64F : CUDA_R_32F)) return false;
  return wide ? p.desc.compute == CUBLAS_COMPUTE_64F
              : p.desc.compute == CUBLAS_COMPUTE_32F ||
                    (type == CUDA_R_32F && p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

std::uint64_t rows_of(const MatrixLayout& l, std::int32_t op) { return op == CUBLAS_OP_N ? l.rows : l.cols; }
std::uint64_t cols_of(const MatrixLayout& l, std::int32_t op) { return op == CUBLAS_OP_N ? l.cols : l.rows; }

double gelu(double z) {
  return 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

// One matrix of a batch as doubles, row-major.
template <class T>
std::vector<double> read(const MatrixLayout& l, const T* data, std::int64_t element, std::int32_t op) {
  const std::uint64_t rows = rows_of(l, op);
  const std::uint64_t cols = cols_of(l, op);
  const bool down = (l.order == CUBLASLT_ORDER_COL) == (op == CUBLAS_OP_N);
  const auto ld = static_cast<std::uint64_t>(l.ld);
  const T* from = data + element * l.batch_stride;
  std::vector<double> to(rows * cols);
  static const std::uint64_t fault = mutated("stride") ? 1 : 0;
  const std::uint64_t step = ld + fault;
  const std::uint64_t last = down ? rows - 1 + (cols - 1) * ld : (rows - 1) * ld + cols - 1;
  for (std::uint64_t i = 0; i < rows; ++i)
    for (std::uint64_t j = 0; j < cols; ++j)
      to[i * cols + j] = static_cast<double>(from[std::min(down ? i + j * step : i * step + j, last)]);
  return to;
}

template <class T>
void multiply_as(const Product& p, const Operands& o) {
  const std::size_t m = p.d.rows;
  const std::size_t n = p.d.cols;
  const std::size_t depth = cols_of(p.a, p.desc.op_a);
  const bool down = p.d.order == CUBLASLT_ORDER_COL;
  const auto ld = static_cast<std::size_t>(p.d.ld);
  const T* bias = static_cast<const T*>(p.desc.bias);
  const Epilogue epilogue = epilogue_of(p.desc.epilogue);
  T* aux = static_cast<T*>(p.desc.aux);
  std::vector<double> sums(n);
  for (std::int64_t e = 0; e < p.d.batch; ++e) {
    std::vector<double> a = read(p.a, static_cast<const T*>(o.a), e, p.desc.op_a);
    std::vector<double> b = read(p.b, static_cast<const T*>(o.b), e, p.desc.op_b);
    if (p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
      round_to_tf32(a);
      round_to_tf32(b);
    }
    // As the real one, c is not looked at where it does not count.
    std::vector<double> c;
    if (o.beta != 0) c = read(p.c, static_cast<const T*>(o.c), e, CUBLAS_OP_N);
    T* d = static_cast<T*>(o.d) + e * p.d.batch_stride;
    for (std::size_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::size_t k = 0; k < depth; ++k)
        for (std::size_t j = 0; j < n; ++j) sums[j] += a[i * depth + k] * b[k * n + j];
      for (std::size_t j = 0; j < n; ++j) {
        double value = o.alpha * sums[j];
        if (o.beta != 0) value += o.beta * c[i * n + j];
        using Rounded = std::conditional_t<std::is_same_v<T, double>, double, float>;
        if (epilogue.bias) value += static_cast<double>(bias[i]);
        if (epilogue.aux)
          aux[i + j * static_cast<std::size_t>(p.desc.aux_ld)] = static_cast<T>(static_cast<Rounded>(value));
        if (epilogue.relu) value = value < 0 ? 0 : value;
        if (epilogue.gelu) value = gelu(value);
        d[down ? i + j * ld : i * ld + j] = static_cast<T>(static_cast<Rounded>(value));
      }
    }
  }
}

}  // namespace

Epilogue epilogue_of(std::uint32_t name) {
  switch (name) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return {};
    case CUBLASLT_EPILOGUE_BIAS:
      return {.bias = true};
    case CUBLASLT_EPILOGUE_RELU:
      return {.relu = true};
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      return {.bias = true, .relu = true};
    case CUBLASLT_EPILOGUE_GELU:
      return {.gelu = true};
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      return {.bias = true, .gelu = true};
    case CUBLASLT_EPILOGUE_GELU_AUX:
      return {.gelu = true, .aux = true};
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      return {.bias = true, .gelu = true, .aux = true};
    default:
      return {.known = false};
  }
}

bool alike(const MatrixLayout& a, const MatrixLayout& b) {
  return a.order == b.order && a.rows == b.rows && a.cols == b.cols && a.ld == b.ld && a.batch == b.batch &&
         a.batch_stride == b.batch_stride;
}

cublasStatus_t verdict(const Product& p) {
  for (const MatrixLayout* l : {&p.a, &p.b, &p.c, &p.d})
    if (!is_described(*l) || l->batch != p.d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_fit(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const std::int32_t op : {p.desc.op_a, p.desc.op_b})
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) return CUBLAS_STATUS_INVALID_VALUE;
  const bool fits = rows_of(p.a, p.desc.op_a) == p.d.rows && cols_of(p.b, p.desc.op_b) == p.d.cols &&
                    cols_of(p.a, p.desc.op_a) == rows_of(p.b, p.desc.op_b) && p.c.rows == p.d.rows &&
                    p.c.cols == p.d.cols;
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  // Batch elements of the result may not be one.
  if (p.d.batch > 1 && p.d.batch_stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  const Epilogue e = epilogue_of(p.desc.epilogue);
  // Activations not for doubles.
  if (!e.known || p.d.order != CUBLASLT_ORDER_COL || (p.desc.scale == CUDA_R_64F && (e.relu || e.gelu)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (e.aux && (p.desc.aux == nullptr || p.desc.aux_ld % 8 != 0 || p.d.batch > 1 ||
                static_cast<std::uint64_t>(p.desc.aux_ld) < p.d.rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!e.bias) return CUBLAS_STATUS_SUCCESS;
  if (p.desc.bias == nullptr || (p.desc.bias_type != -1 && p.desc.bias_type != p.d.type))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t number_of(const Product& p) {
  std::uint64_t h = 14695981039346656037ULL;
  const auto add = [&](std::uint64_t v) { h = (h ^ v) * 1099511628211ULL; };
  for (const std::int32_t v : {p.desc.compute, p.desc.op_a, p.desc.op_b}) add(static_cast<std::uint64_t>(v));
  add(p.desc.epilogue);
  add(static_cast<std::uint64_t>(p.desc.aux_ld));
  for (const MatrixLayout* l : {&p.a, &p.b, &p.c, &p.d}) {
    for (const std::uint64_t v : {l->rows, l->cols}) add(v);
    for (const std::int64_t v : {l->ld, l->batch_stride}) add(static_cast<std::uint64_t>(v));
    for (const std::int32_t v : {l->type, l->order, l->batch}) add(static_cast<std::uint64_t>(v));
  }
  return h;
}

void multiply(const Product& p, const Operands& o) {
  switch (p.d.type) {
    case CUDA_R_64F:
      return multiply_as<double>(p, o);
    case CUDA_R_16BF:
      return multiply_as<tessera::bf16>(p, o);
    case CUDA_R_16F:
      return multiply_as<tessera::f16>(p, o);
    default:
      return multiply_as<float>(p, o);
  }
}

}  // namespace tessera::emulated
