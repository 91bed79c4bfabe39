// Element types and their promotion (PyTorch's rules for tensors of one or more dims).
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t { F32, F64, BF16, F16, I64, I32, Bool };

// bfloat16: the upper half of a float. Arithmetic is done in float; rounding is to nearest even.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float value) {
    auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((u >> 16U) | 0x40U);  // NaN stays NaN
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U);
    }
  }
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }  // NOLINT
};

// IEEE binary16: 11 bits of mantissa, from 2^-24 (below 2^-14 with fewer bits) to 65504. Arithmetic is done
// in float; rounding is to nearest even, from 65520 on to infinity. The bits are those of the processors' own
// conversions, NaN's too.
struct f16 {
  std::uint16_t bits = 0;
  f16() = default;
  constexpr explicit f16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rest = u & 0x7fffffffU;
    std::uint32_t half = 0;
    if (rest > 0x7f800000U) {
      half = 0x7e00U | ((rest >> 13U) & 0x3ffU);  // NaN stays NaN
    } else if (rest >= 0x47800000U) {
      half = 0x7c00U;
    } else if (rest < 0x38800000U) {  // the last bit of floats from 0.5 on is worth 2^-24
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5F) - 0x3f000000U;
    } else {  // the exponent is counted from 15 less 127 on
      half = (rest - 0x38000000U + 0xfffU + ((rest >> 13U) & 1U)) >> 13U;
    }
    bits = static_cast<std::uint16_t>(half | ((u >> 16U) & 0x8000U));
  }
  constexpr operator float() const {  // NOLINT
    const std::uint32_t rest = bits & 0x7fffU;
    std::uint32_t u = (rest << 13U) + 0x38000000U;
    if (rest > 0x7c00U) {
      u = (u + 0x38000000U) | 0x400000U;  // quiet
    } else if (rest == 0x7c00U) {
      u = 0x7f800000U;
    } else if (rest < 0x400U) {
      u = std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24F);
    }
    return std::bit_cast<float>(u | (bits & 0x8000U) << 16U);
  }
};

// The types of 16 bits, whose arithmetic is done in float.
template <class T>
inline constexpr bool kHalf = false;
template <>
inline constexpr bool kHalf<bf16> = true;
template <>
inline constexpr bool kHalf<f16> = true;
constexpr bool is_half(DType t) { return t == DType::BF16 || t == DType::F16; }

constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::F32:
      return 4;
    case DType::F64:
      return 8;
    case DType::BF16:
    case DType::F16:
      return 2;
    case DType::I64:
      return 8;
    case DType::I32:
      return 4;
    case DType::Bool:
      return 1;
  }
  return 0;
}
constexpr bool is_floating(DType t) { return t == DType::F32 || t == DType::F64 || is_half(t); }
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::F32:
      return "f32";
    case DType::F64:
      return "f64";
    case DType::BF16:
      return "bf16";
    case DType::F16:
      return "f16";
    case DType::I64:
      return "i64";
    case DType::I32:
      return "i32";
    case DType::Bool:
      return "bool";
  }
  return "?";
}
DType promote(DType a, DType b);

template <class T>
struct TypeTag {
  using type = T;
};
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::F32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::F64;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::BF16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::F16;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::I64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::I32;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::Bool;
}

// Calls f(TypeTag<T>{}) with the C++ type of `t`.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
    case DType::F32:
      return f(TypeTag<float>{});
    case DType::F64:
      return f(TypeTag<double>{});
    case DType::BF16:
      return f(TypeTag<bf16>{});
    case DType::F16:
      return f(TypeTag<f16>{});
    case DType::I64:
      return f(TypeTag<std::int64_t>{});
    case DType::I32:
      return f(TypeTag<std::int32_t>{});
    case DType::Bool:
      return f(TypeTag<bool>{});
  }
  __builtin_unreachable();
}
// The same for floating types only (the caller has checked).
template <class F>
decltype(auto) dispatch_floating(DType t, F&& f) {
  switch (t) {
    case DType::F64:
      return f(TypeTag<double>{});
    case DType::BF16:
      return f(TypeTag<bf16>{});
    case DType::F16:
      return f(TypeTag<f16>{});
    default:
      return f(TypeTag<float>{});
  }
}

}  // namespace tessera
