// cuBLASLt's functions that the library calls, answered by the emulated device: what the descriptors say is
// worked out in the stream's order, in double. Descriptors that do not fit together are refused as cuBLASLt
// does, and an algorithm serves the problem and the alignments that it was chosen for and no others.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "emulated/memory.h"
#include "emulated/mutation.h"
#include "emulated/streams.h"
#include "runtime/dtype.h"

namespace emu = tessera::emulated;

namespace {

struct Desc {
  std::int32_t compute = 0;
  std::int32_t scale = 0;
  std::int32_t op_a = CUBLAS_OP_N;
  std::int32_t op_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  const void* bias = nullptr;
};
struct Layout {
  std::int32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4]{256, 256, 256, 256};  // a, b, c, d
};
// What an algorithm was chosen for.
struct Algorithm {
  std::uint64_t problem = 0;
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4]{};
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

struct Problem {
  Desc desc;
  Layout a, b, c, d;
};

template <class Opaque>
auto* inside(Opaque* p) {
  using T = std::conditional_t<
      std::is_same_v<Opaque, cublasLtMatmulDescOpaque_t>, Desc,
      std::conditional_t<std::is_same_v<Opaque, cublasLtMatrixLayoutOpaque_t>, Layout, Preference>>;
  static_assert(sizeof(T) <= sizeof(Opaque));
  return reinterpret_cast<T*>(p);
}

template <class Opaque>
cublasStatus_t create(Opaque** out) {
  *out = new Opaque{};
  *inside(*out) = {};
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of_type(std::int32_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_16BF ? 2 : 4; }

bool is_described(const Layout& l) {
  if (l.order != CUBLASLT_ORDER_COL && l.order != CUBLASLT_ORDER_ROW) return false;
  const std::uint64_t least = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
  return l.rows > 0 && l.cols > 0 && l.ld > 0 && static_cast<std::uint64_t>(l.ld) >= least && l.batch >= 1;
}

// The types that are multiplied: double; float and bf16 with float sums.
bool types_fit(const Problem& p) {
  const std::int32_t type = p.a.type;
  const bool wide = type == CUDA_R_64F;
  if (p.b.type != type || p.c.type != type || p.d.type != type) return false;
  if (!wide && type != CUDA_R_32F && type != CUDA_R_16BF) return false;
  if (p.desc.scale != (wide ? CUDA_R_64F : CUDA_R_32F)) return false;
  return wide ? p.desc.compute == CUBLAS_COMPUTE_64F
              : p.desc.compute == CUBLAS_COMPUTE_32F ||
                    (type == CUDA_R_32F && p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}

std::uint64_t rows_of(const Layout& l, std::int32_t op) { return op == CUBLAS_OP_N ? l.rows : l.cols; }
std::uint64_t cols_of(const Layout& l, std::int32_t op) { return op == CUBLAS_OP_N ? l.cols : l.rows; }

cublasStatus_t verdict(const Problem& p) {
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
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
  if (p.desc.epilogue != CUBLASLT_EPILOGUE_BIAS || p.d.order != CUBLASLT_ORDER_COL)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.desc.bias == nullptr || (p.desc.bias_type != -1 && p.desc.bias_type != p.d.type))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

std::uint64_t number_of(const Problem& p) {
  std::uint64_t h = 14695981039346656037ULL;
  const auto add = [&](std::uint64_t v) { h = (h ^ v) * 1099511628211ULL; };
  for (const std::int32_t v : {p.desc.compute, p.desc.op_a, p.desc.op_b}) add(static_cast<std::uint64_t>(v));
  add(p.desc.epilogue);
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d}) {
    for (const std::uint64_t v : {l->rows, l->cols}) add(v);
    for (const std::int64_t v : {l->ld, l->batch_stride}) add(static_cast<std::uint64_t>(v));
    for (const std::int32_t v : {l->type, l->order, l->batch}) add(static_cast<std::uint64_t>(v));
  }
  return h;
}

// One matrix of a batch as doubles, row-major.
template <class T>
std::vector<double> read(const Layout& l, const T* data, std::int64_t element, std::int32_t op) {
  const std::uint64_t rows = rows_of(l, op);
  const std::uint64_t cols = cols_of(l, op);
  const bool down = (l.order == CUBLASLT_ORDER_COL) == (op == CUBLAS_OP_N);
  const auto ld = static_cast<std::uint64_t>(l.ld);
  const T* from = data + element * l.batch_stride;
  std::vector<double> to(rows * cols);
  static const std::uint64_t fault = emu::mutated("stride") ? 1 : 0;
  const std::uint64_t step = ld + fault;
  const std::uint64_t last = down ? rows - 1 + (cols - 1) * ld : (rows - 1) * ld + cols - 1;
  for (std::uint64_t i = 0; i < rows; ++i)
    for (std::uint64_t j = 0; j < cols; ++j)
      to[i * cols + j] = static_cast<double>(from[std::min(down ? i + j * step : i * step + j, last)]);
  return to;
}

struct Operands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  double alpha;
  double beta;
};

template <class T>
void multiply(const Problem& p, const Operands& o) {
  const std::size_t m = p.d.rows;
  const std::size_t n = p.d.cols;
  const std::size_t depth = cols_of(p.a, p.desc.op_a);
  const bool down = p.d.order == CUBLASLT_ORDER_COL;
  const auto ld = static_cast<std::size_t>(p.d.ld);
  const T* bias = static_cast<const T*>(p.desc.bias);
  std::vector<double> sums(n);
  for (std::int64_t e = 0; e < p.d.batch; ++e) {
    const std::vector<double> a = read(p.a, static_cast<const T*>(o.a), e, p.desc.op_a);
    const std::vector<double> b = read(p.b, static_cast<const T*>(o.b), e, p.desc.op_b);
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
        if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS) value += static_cast<double>(bias[i]);
        using Rounded = std::conditional_t<std::is_same_v<T, double>, double, float>;
        d[down ? i + j * ld : i * ld + j] = static_cast<T>(static_cast<Rounded>(value));
      }
    }
  }
}

bool is_aligned(const void* p, std::uint64_t bytes) {
  return bytes == 0 || reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "the functionality requested is not supported"
                                               : "an unsupported value or parameter was passed";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  create(desc);
  inside(*desc)->compute = compute;
  inside(*desc)->scale = scale;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  Desc& d = *inside(desc);
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(d.op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(d.op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(d.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(d.bias_type, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  create(layout);
  Layout& l = *inside(*layout);
  l.type = type;
  l.rows = rows;
  l.cols = cols;
  l.ld = ld;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t name, const void* value,
                                                std::size_t bytes) {
  Layout& l = *inside(layout);
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return assign(l.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(l.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(l.batch_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, std::size_t bytes) {
  Preference& p = *inside(preference);
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(p.schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(p.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(p.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(p.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(p.alignment[3], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p{*inside(desc), *inside(a), *inside(b), *inside(c), *inside(d)};
  if (const cublasStatus_t status = verdict(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const Preference& wanted = *inside(preference);
  Algorithm algorithm;
  algorithm.problem = number_of(p);
  // Products of many terms take some of the memory they may have.
  algorithm.workspace = p.a.rows * p.a.cols > 512 && wanted.workspace >= 4096 ? 4096 : 0;
  std::memcpy(algorithm.alignment, wanted.alignment, sizeof algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1.0F;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const Problem p{*inside(desc), *inside(a_layout), *inside(b_layout), *inside(c_layout), *inside(d_layout)};
  if (const cublasStatus_t status = verdict(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo == nullptr || stream == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm chosen;
  std::memcpy(static_cast<void*>(&chosen), algo, sizeof chosen);
  if (chosen.problem != number_of(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (chosen.workspace > workspace_bytes || (chosen.workspace > 0 && !emu::is_device_address(workspace)) ||
      !is_aligned(workspace, chosen.workspace > 0 ? 16 : 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* pointers[4]{a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!emu::is_device_address(pointers[i]) || !is_aligned(pointers[i], chosen.alignment[i]))
      return CUBLAS_STATUS_INVALID_VALUE;
  const bool bias = p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (bias && (!emu::is_device_address(p.desc.bias) || !is_aligned(p.desc.bias, size_of_type(p.d.type))))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = p.desc.scale == CUDA_R_64F;
  const auto number = [&](const void* x) {
    return wide ? *static_cast<const double*>(x) : static_cast<double>(*static_cast<const float*>(x));
  };
  const Operands at{emu::reach(a), emu::reach(b), emu::reach(c), emu::reach(d), number(alpha), number(beta)};
  ++emu::counters().kernels;
  emu::enqueue(reinterpret_cast<emu::Stream*>(stream), [p, at, workspace, bytes = chosen.workspace] {
    // Whoever else believes the workspace to be his finds out.
    if (bytes > 0) std::memset(emu::reach(workspace), 0xFF, bytes);
    Problem here = p;
    here.desc.bias = emu::reach(p.desc.bias);
    switch (p.d.type) {
      case CUDA_R_64F:
        multiply<double>(here, at);
        break;
      case CUDA_R_16BF:
        multiply<tessera::bf16>(here, at);
        break;
      default:
        multiply<float>(here, at);
    }
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
