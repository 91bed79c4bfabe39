// clang 14 lacks the builtin behind std::source_location, so libstdc++ leaves the type out; for the linter
// only.
#pragma once
#include <cstdint>
#include <version>
#if defined(__clang__) && !__has_builtin(__builtin_source_location)
namespace std {
struct source_location {
  static constexpr source_location current() { return {}; }
  constexpr const char* file_name() const { return ""; }
  constexpr const char* function_name() const { return ""; }
  constexpr uint_least32_t line() const { return 0; }
  constexpr uint_least32_t column() const { return 0; }
};
}  // namespace std
#endif
