// cuBLASLt's functions that the library calls, answered by the emulated device: what the descriptors say is
// worked out in the stream's order, in double. Descriptors that do not fit together are refused as cuBLASLt
// does, and an algorithm serves the problem and the alignments that it was chosen for and no others.
#include <cublasLt.h>

#include <cstring>
#include <type_traits>

#include "emulated/cublaslt_product.h"
#include "emulated/memory.h"
#include "emulated/mutation.h"
#include "emulated/settings.h"
#include "emulated/streams.h"

namespace emu = tessera::emulated;

namespace {

using Desc = emu::ProductDesc;
using Layout = emu::MatrixLayout;
using Problem = emu::Product;

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

std::size_t size_of_type(std::int32_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 4;
}

// Whether the heuristic has nothing for it, on purpose.
bool is_left_out(const Problem& p) {
  static const bool some = emu::mutated("refuse-products");
  ++emu::product_counters().asked;
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ULL;
  if (!some || ((emu::number_of(p) ^ emu::seed_setting()) * kMix >> 63U) == 0) return false;
  ++emu::product_counters().refused;
  return true;
}

bool is_aligned(const void* p, std::uint64_t bytes) {
  return bytes == 0 || reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

namespace tessera::emulated {
ProductCounters& product_counters() {
  static ProductCounters counters;
  return counters;
}
}  // namespace tessera::emulated

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
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(d.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(d.aux_ld, value, bytes);
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
  if (requested < 1 || results == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem p{*inside(desc), *inside(a), *inside(b), *inside(c), *inside(d)};
  if (const cublasStatus_t status = emu::verdict(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (is_left_out(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& wanted = *inside(preference);
  Algorithm algorithm;
  algorithm.problem = emu::number_of(p);
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
  if (const cublasStatus_t status = emu::verdict(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo == nullptr || stream == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm chosen;
  std::memcpy(static_cast<void*>(&chosen), algo, sizeof chosen);
  if (chosen.problem != emu::number_of(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (chosen.workspace > workspace_bytes || (chosen.workspace > 0 && !emu::is_device_address(workspace)) ||
      !is_aligned(workspace, chosen.workspace > 0 ? 16 : 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* pointers[4]{a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!emu::is_device_address(pointers[i]) || !is_aligned(pointers[i], chosen.alignment[i]) ||
        !is_aligned(pointers[i], size_of_type(p.d.type)))
      return CUBLAS_STATUS_INVALID_VALUE;
  // A result in place of c is laid out as c.
  if (c == d && !emu::alike(p.c, p.d)) return CUBLAS_STATUS_INVALID_VALUE;
  const emu::Epilogue epilogue = emu::epilogue_of(p.desc.epilogue);
  if (epilogue.aux && (!emu::is_device_address(p.desc.aux) || !is_aligned(p.desc.aux, 16)))
    return CUBLAS_STATUS_INVALID_VALUE;
  // Epilogues read 16 bytes of it at a time.
  if (epilogue.bias && (!emu::is_device_address(p.desc.bias) || !is_aligned(p.desc.bias, 16)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool wide = p.desc.scale == CUDA_R_64F;
  const auto number = [&](const void* x) {
    return wide ? *static_cast<const double*>(x) : static_cast<double>(*static_cast<const float*>(x));
  };
  const emu::Operands at{emu::reach(a), emu::reach(b), emu::reach(c),
                         emu::reach(d), number(alpha), number(beta)};
  ++emu::counters().kernels;
  if (emu::is_instant()) return CUBLAS_STATUS_SUCCESS;
  emu::enqueue(reinterpret_cast<emu::Stream*>(stream), [p, at, workspace, bytes = chosen.workspace] {
    // Whoever else believes the workspace to be his finds out.
    if (bytes > 0) std::memset(emu::reach(workspace), 0xFF, bytes);
    Problem here = p;
    here.desc.bias = emu::reach(p.desc.bias);
    here.desc.aux = emu::reach(p.desc.aux);
    emu::multiply(here, at);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
