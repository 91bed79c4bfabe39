// From stored NetCDF values to numbers: masking, then scaling. Knows arrays of bytes, not files.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "train/netcdf.h"

namespace tessera::data {

// Types of stored numbers, after `_Unsigned` has been applied.
enum class Stored : std::uint8_t { I8, U8, I16, U16, I32, U32, I64, U64, F32, F64 };
std::int64_t size_of(Stored type);

// What is known of one variable's missing values and packing; values are kept in its stored type, as bits of
// a double (floating types), int64 (signed) or uint64 (unsigned), so that 64-bit integers compare exactly.
struct Decoder {
  union Value {
    double f;
    std::int64_t i;
    std::uint64_t u;
  };
  Stored type = Stored::F32;
  std::vector<Value> missing;  // equal to one of these: missing
  bool has_min = false;
  bool has_max = false;
  Value min{};
  Value max{};
  double scale = 1.0;
  double offset = 0.0;
};

// Works the attributes of `variable` into a decoder; `default_fill`: whether the type's default fill value
// counts when there is no `_FillValue`. Attributes that cannot be used are put into `variable.warnings`.
// `variable.type` must be numeric.
Decoder make_decoder(NetCdfVariable& variable, bool default_fill);

// Decodes `n` stored values into `out` (contiguous, on the CPU): masked and scaled if it is floating, else as
// stored.
void decode(const Decoder& decoder, const void* stored, const Array& out);

}  // namespace tessera::data
