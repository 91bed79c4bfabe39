// Arithmetic on sizes that a caller gives: what 64 bits do not hold is refused in the name of the operation
// that was called, before it wraps into a size that looks right.
#pragma once
#include "runtime/dtype.h"
#include "runtime/shape.h"

namespace tessera {

std::int64_t checked_sum(const char* op, std::int64_t a, std::int64_t b);
std::int64_t checked_product(const char* op, std::int64_t a, std::int64_t b);
// Refuses sizes whose elements 64 bits do not count (a view of so many needs no memory).
void check_countable(const char* op, const Dims& sizes);
// Refuses sizes whose elements 64 bits do not count in bytes.
void check_storable(const char* op, const Dims& sizes, DType dtype);

}  // namespace tessera
