#include "ops/cpu/linear.h"

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/matmul.h"
#include "ops/cpu/pointwise.h"

namespace tessera::cpu {
namespace {

// Fewer rows a product and oneDNN does not pack them (matmul_onednn.cpp).
constexpr std::int64_t kRows = 1024;

}  // namespace

void linear(const LinearArgs& args) {
  const Array& given = args.z.defined() ? args.z : args.y;
  const std::int64_t rows = args.y.size(0);
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t n = std::min(kRows, rows - i);
    const auto part = [&](const Array& a) { return a.slice(0, i, n); };
    matmul({part(given), part(args.x), args.w, args.bias, false});
    if (args.activation != Activation::None) unary({part(args.y), part(given), forward_op(args.activation)});
  }
}

}  // namespace tessera::cpu
