#include "runtime/dtype.h"

#include <algorithm>

namespace tessera {
namespace {

int integer_rank(DType t) {
  switch (t) {
    case DType::Bool:
      return 0;
    case DType::I32:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  const bool fa = is_floating(a);
  const bool fb = is_floating(b);
  if (fa && fb) return a == DType::F64 || b == DType::F64 ? DType::F64 : DType::F32;
  if (fa) return a;
  if (fb) return b;
  return integer_rank(a) > integer_rank(b) ? a : b;
}

}  // namespace tessera
