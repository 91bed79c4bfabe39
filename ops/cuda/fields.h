// Visits every Array in an argument struct, however deep: for_each_array(args, [](Array& a) { ... }).
//
// Argument structs are aggregates of up to sixteen members. Arrays among them are visited, aggregates among
// them are entered; vectors, pointers, Dims and numbers hold no arrays.
#pragma once
#include <array>
#include <type_traits>
#include <utility>

#include "runtime/array.h"

namespace tessera::cuda {
namespace detail {

struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): only named, never called
};
template <std::size_t>
using AnythingAt = Anything;

template <class T, class Indices>
struct TakesMembers;
template <class T, std::size_t... I>
struct TakesMembers<T, std::index_sequence<I...>> {
  static constexpr bool value = requires { T{AnythingAt<I>{}...}; };
};

template <class T, std::size_t N = 16>
constexpr std::size_t member_count() {
  if constexpr (N == 0) {
    return 0;
  } else if constexpr (TakesMembers<T, std::make_index_sequence<N>>::value) {
    return N;
  } else {
    return member_count<T, N - 1>();
  }
}

template <class T>
struct IsStdArray : std::false_type {};
template <class T, std::size_t N>
struct IsStdArray<std::array<T, N>> : std::true_type {};

template <class T>
constexpr bool kMayHoldArrays =
    std::is_class_v<T>&& std::is_aggregate_v<T> && !IsStdArray<T>::value && !std::is_same_v<T, Array>;

}  // namespace detail

template <class T, class F>
void for_each_array(T& value, F&& f) {
  if constexpr (std::is_same_v<T, Array>) {
    f(value);
  } else if constexpr (detail::kMayHoldArrays<T>) {
    constexpr std::size_t n = detail::member_count<T>();
    const auto all = [&](auto&... members) { (for_each_array(members, f), ...); };
    static_assert(n <= 16);
    // clang-format off
    if constexpr (n == 1) { auto& [a] = value; all(a); }
    if constexpr (n == 2) { auto& [a, b] = value; all(a, b); }
    if constexpr (n == 3) { auto& [a, b, c] = value; all(a, b, c); }
    if constexpr (n == 4) { auto& [a, b, c, d] = value; all(a, b, c, d); }
    if constexpr (n == 5) { auto& [a, b, c, d, e] = value; all(a, b, c, d, e); }
    if constexpr (n == 6) { auto& [a, b, c, d, e, g] = value; all(a, b, c, d, e, g); }
    if constexpr (n == 7) { auto& [a, b, c, d, e, g, h] = value; all(a, b, c, d, e, g, h); }
    if constexpr (n == 8) { auto& [a, b, c, d, e, g, h, i] = value; all(a, b, c, d, e, g, h, i); }
    if constexpr (n == 9) { auto& [a, b, c, d, e, g, h, i, j] = value; all(a, b, c, d, e, g, h, i, j); }
    if constexpr (n == 10) { auto& [a, b, c, d, e, g, h, i, j, k] = value; all(a, b, c, d, e, g, h, i, j, k); }
    if constexpr (n == 11) { auto& [a, b, c, d, e, g, h, i, j, k, l] = value; all(a, b, c, d, e, g, h, i, j, k, l); }
    if constexpr (n == 12) { auto& [a, b, c, d, e, g, h, i, j, k, l, m] = value; all(a, b, c, d, e, g, h, i, j, k, l, m); }
    if constexpr (n == 13) { auto& [a, b, c, d, e, g, h, i, j, k, l, m, o] = value; all(a, b, c, d, e, g, h, i, j, k, l, m, o); }
    if constexpr (n == 14) { auto& [a, b, c, d, e, g, h, i, j, k, l, m, o, p] = value; all(a, b, c, d, e, g, h, i, j, k, l, m, o, p); }
    // clang-format on
    static_assert(n <= 14, "one more line is needed above");
  }
}

}  // namespace tessera::cuda
