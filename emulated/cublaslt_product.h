// The products that the emulated cuBLASLt works out, as its descriptors say them.
#pragma once
#include <cublasLt.h>

#include <cstdint>

namespace tessera::emulated {

struct ProductDesc {
  std::int32_t compute = 0;
  std::int32_t scale = 0;
  std::int32_t op_a = CUBLAS_OP_N;
  std::int32_t op_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};
struct MatrixLayout {
  std::int32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};
// In all but the type.
bool alike(const MatrixLayout& a, const MatrixLayout& b);
struct Product {
  ProductDesc desc;
  MatrixLayout a, b, c, d;
};
struct Epilogue {
  bool known = true;
  bool bias = false;
  bool relu = false;
  bool gelu = false;
  bool aux = false;  // what gelu is given is written
};
Epilogue epilogue_of(std::uint32_t name);

// Whether descriptors that fit together were given, and the types and epilogues are ones that there are.
cublasStatus_t verdict(const Product& p);
// How often the heuristic was asked, and how often it had nothing on purpose (refuse-products).
struct ProductCounters {
  long long asked = 0;
  long long refused = 0;
};
ProductCounters& product_counters();
// A number for all that an algorithm may depend on.
std::uint64_t number_of(const Product& p);

// Memory as the device reaches it.
struct Operands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  double alpha;
  double beta;
};
void multiply(const Product& p, const Operands& o);

}  // namespace tessera::emulated
