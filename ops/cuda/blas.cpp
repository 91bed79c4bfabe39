#include "ops/cuda/blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "runtime/error.h"
#include "runtime/shape.h"

namespace tessera::cuda {
namespace {

constexpr std::size_t kPlans = 1024;  // per thread
constexpr std::size_t kMostWorkspace = std::size_t{32} << 20U;

void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    TS_FAIL(Backend, "cuda", "{} failed: {}", call, cublasLtGetStatusString(status));
}

// Never destroyed: the driver may be gone before static variables are.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t instance = [] {
    cublasLtHandle_t h = nullptr;
    check_blas(cublasLtCreate(&h), "cublasLtCreate");
    return h;
  }();
  return instance;
}

template <auto Destroy>
struct Destroyer {
  template <class T>
  void operator()(T* t) const {
    Destroy(t);
  }
};
using MatmulDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof value),
             "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name, const T& value) {
  check_blas(cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof value),
             "cublasLtMatrixLayoutSetAttribute");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
             "cublasLtMatmulPreferenceSetAttribute");
}

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::F64:
      return CUDA_R_64F;
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}
cublasComputeType_t compute_of(const BlasShape& s) {
  if (s.dtype == DType::F64) return CUBLAS_COMPUTE_64F;
  return s.tf32 && s.dtype == DType::F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(const BlasShape& s) {
  switch (s.activation) {
    case BlasActivation::Relu:
      return s.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case BlasActivation::GeluTanh:
      if (s.given_ld > 0) return s.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return s.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return s.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// The heuristic wants pointers; any of the right alignment will do.
constexpr std::int64_t kSomewhere = 1 << 16;

MatmulDesc make_desc(const BlasShape& s) {
  cublasLtMatmulDesc_t raw = nullptr;
  check_blas(cublasLtMatmulDescCreate(&raw, compute_of(s), s.dtype == DType::F64 ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescCreate");
  MatmulDesc desc(raw);
  const auto operation = [](const BlasLayout& l) { return l.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(raw, CUBLASLT_MATMUL_DESC_TRANSA, operation(s.p));
  set(raw, CUBLASLT_MATMUL_DESC_TRANSB, operation(s.q));
  set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s));
  if (s.bias) {
    set(raw, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.dtype));
    set(raw, CUBLASLT_MATMUL_DESC_BIAS_POINTER, kSomewhere);
  }
  if (s.given_ld > 0) {
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.given_ld);
    set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, kSomewhere);
  }
  return desc;
}

Layout make_layout(const BlasShape& s, const BlasLayout& l, std::int64_t rows, std::int64_t cols) {
  if (l.transposed) std::swap(rows, cols);
  cublasLtMatrixLayout_t raw = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&raw, type_of(s.dtype), static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(cols), l.ld),
             "cublasLtMatrixLayoutCreate");
  Layout layout(raw);
  if (s.batch > 1) {
    set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(s.batch));
    set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, l.batch_stride);
  }
  return layout;
}

Preference make_preference(const BlasShape& s) {
  cublasLtMatmulPreference_t raw = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
  Preference preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Partial sums in the output's type would be rounded to bf16 or f16.
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto bytes = [](const BlasLayout& l) { return static_cast<std::uint32_t>(l.alignment); };
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(s.p));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(s.q));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(s.d));
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(s.d));
  return preference;
}

// Alpha and beta lie in host memory, which is read before the call returns.
const void* number(DType dtype, bool one) {
  static constexpr float kFloats[2]{0.0F, 1.0F};
  static constexpr double kDoubles[2]{0.0, 1.0};
  const std::size_t i = one ? 1 : 0;
  return dtype == DType::F64 ? static_cast<const void*>(&kDoubles[i]) : &kFloats[i];
}

std::uint64_t bits_of(const BlasLayout& l) {
  return static_cast<std::uint64_t>(l.alignment) << 1U | (l.transposed ? 1U : 0U);
}
struct ShapeHash {
  std::size_t operator()(const BlasShape& s) const {
    std::size_t seed = static_cast<std::size_t>(s.dtype) | (s.accumulate ? 16U : 0U) | (s.tf32 ? 32U : 0U) |
                       (s.bias ? 64U : 0U) | static_cast<std::size_t>(s.activation) << 7U;
    for (const std::int64_t v : {s.m, s.n, s.k, s.batch, s.given_ld})
      hash_combine(seed, static_cast<std::size_t>(v));
    for (const BlasLayout* l : {&s.d, &s.p, &s.q}) {
      hash_combine(seed, static_cast<std::size_t>(l->ld));
      hash_combine(seed, static_cast<std::size_t>(l->batch_stride));
      hash_combine(seed, bits_of(*l));
    }
    return seed;
  }
};

}  // namespace

class BlasPlan {
 public:
  explicit BlasPlan(const BlasShape& s)
      : dtype_(s.dtype),
        bias_(s.bias),
        given_(s.given_ld > 0),
        accumulate_(s.accumulate),
        desc_(make_desc(s)),
        p_(make_layout(s, s.p, s.m, s.k)),
        q_(make_layout(s, s.q, s.k, s.n)),
        d_(make_layout(s, s.d, s.m, s.n)) {
    use_device();
    const Preference preference = make_preference(s);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), desc_.get(), p_.get(), q_.get(), d_.get(), d_.get(),
                                       preference.get(), 1, &algorithm_, &found);
    usable_ = status == CUBLAS_STATUS_SUCCESS && found > 0 && algorithm_.state == CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  }

  bool usable() const { return usable_; }
  std::size_t workspace() const { return algorithm_.workspaceSize; }
  void run(const BlasPointers& at, void* workspace, StreamHandle stream) {
    if (bias_) set(desc_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
    if (given_) set(desc_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.given);
    check_blas(cublasLtMatmul(handle(), desc_.get(), number(dtype_, true), at.p, p_.get(), at.q, q_.get(),
                              number(dtype_, accumulate_), at.d, d_.get(), at.d, d_.get(), &algorithm_.algo,
                              workspace, algorithm_.workspaceSize, stream),
               "cublasLtMatmul");
  }

  std::uint64_t last_use = 0;

 private:
  DType dtype_;
  bool bias_;
  bool given_;
  bool accumulate_;
  bool usable_ = false;
  MatmulDesc desc_;
  Layout p_, q_, d_;
  cublasLtMatmulHeuristicResult_t algorithm_{};
};

BlasPlan* blas_plan(const BlasShape& shape) {
  using Plans = std::unordered_map<BlasShape, std::unique_ptr<BlasPlan>, ShapeHash>;
  thread_local auto* plans = new Plans;
  thread_local std::uint64_t now = 0;
  auto found = plans->find(shape);
  if (found == plans->end()) {
    if (plans->size() >= kPlans) {
      auto oldest = plans->begin();
      for (auto i = plans->begin(); i != plans->end(); ++i)
        if (i->second->last_use < oldest->second->last_use) oldest = i;
      plans->erase(oldest);
    }
    found = plans->emplace(shape, std::make_unique<BlasPlan>(shape)).first;
  }
  found->second->last_use = ++now;
  return found->second->usable() ? found->second.get() : nullptr;
}

std::int64_t workspace_bytes(const BlasPlan& plan) { return static_cast<std::int64_t>(plan.workspace()); }

void run_blas(BlasPlan& plan, const BlasPointers& pointers, void* workspace, StreamHandle stream) {
  plan.run(pointers, workspace, stream);
}

}  // namespace tessera::cuda
