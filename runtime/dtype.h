// Element types and their promotion (PyTorch's rules for tensors of one or more dims).
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t { F32, F64, BF16, I64, I32, Bool };

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

constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::F32:
      return 4;
    case DType::F64:
      return 8;
    case DType::BF16:
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
constexpr bool is_floating(DType t) { return t == DType::F32 || t == DType::F64 || t == DType::BF16; }
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::F32:
      return "f32";
    case DType::F64:
      return "f64";
    case DType::BF16:
      return "bf16";
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
    default:
      return f(TypeTag<float>{});
  }
}

}  // namespace tessera
