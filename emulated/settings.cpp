#include "emulated/settings.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace tessera::emulated {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMostDevices = 64;  // which have contexts is a set of bits
constexpr double kLongest = 1e9;

[[noreturn]] void refuse(const char* name, std::string_view given, const char* allowed) {
  std::fprintf(stderr, "%s: \"%.*s\" was given, allowed %s\n", name, static_cast<int>(given.size()),
               given.data(), allowed);
  std::_Exit(1);
}

std::string_view text_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// "" where it is not set.
template <class T>
T number(const char* name, T otherwise, std::array<T, 2> range, const char* allowed) {
  const std::string_view given = text_of(name);
  if (given.empty()) return otherwise;
  T value{};
  const auto [end, error] = std::from_chars(given.begin(), given.end(), value);
  if (error != std::errc() || end != given.end() || !(value >= range[0] && value <= range[1]))
    refuse(name, given, allowed);
  return value;
}

bool chosen(const char* name) {
  const std::string_view given = text_of(name);
  if (!given.empty() && given != "0" && given != "1") refuse(name, given, "are 0 and 1");
  return given == "1";
}

Settings from_environment() {
  Settings s;
  s.instant = chosen("TESSERA_EMULATED_INSTANT");
  s.devices = number<std::uint64_t>("TESSERA_EMULATED_DEVICES", s.devices, {1, kMostDevices}, "are 1 to 64");
  s.memory = number<std::uint64_t>("TESSERA_EMULATED_MEMORY", s.memory, {1, kMost}, "are bytes from 1 on");
  s.patience =
      number<double>("TESSERA_EMULATED_PATIENCE", s.patience, {0, kLongest}, "are seconds from 0 to 1e9");
  s.cuda_aware_mpi = chosen("TESSERA_EMULATED_CUDA_AWARE_MPI");
  return s;
}

[[maybe_unused]] const bool read_at_start = (settings(), seed_setting(), true);

}  // namespace

std::uint64_t seed_setting() {
  return number<std::uint64_t>("TESSERA_EMULATED_SEED", 1, {0, kMost}, "are whole numbers from 0 on");
}

const Settings& settings() {
  static const Settings read = from_environment();
  return read;
}

}  // namespace tessera::emulated
