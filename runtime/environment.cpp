#include "runtime/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "runtime/error.h"

namespace tessera {
namespace {

// There before whoever adds to it while the library starts.
std::vector<void (*)()>& settings_checks() {
  static std::vector<void (*)()> checks;
  return checks;
}
std::map<std::string, std::string (*)()>& values_of_common() {
  static std::map<std::string, std::string (*)()> values;
  return values;
}

}  // namespace

void add_settings_check(void (*check)()) { settings_checks().push_back(check); }

void check_settings() {
  for (void (*check)() : settings_checks()) check();
  common_settings();
}

void add_common_setting(const char* variable, std::string (*value)()) {
  values_of_common()[variable] = value;
}

std::string common_settings() {
  std::string lines;
  for (const auto& [variable, value] : values_of_common()) lines += fmt::format("{}={}\n", variable, value());
  return lines;
}

bool environment_switch(const char* variable, bool otherwise) {
  const char* text = std::getenv(variable);
  const std::string_view given = text == nullptr ? "" : text;
  if (given.empty()) return otherwise;
  TS_CHECK(given == "0" || given == "1", variable, "\"{}\" was given, allowed are 0 and 1", given);
  return given == "1";
}

std::string_view environment_choice(const char* variable, std::initializer_list<std::string_view> allowed) {
  const char* text = std::getenv(variable);
  const std::string_view given = text == nullptr ? "" : text;
  const bool known = given.empty() || std::find(allowed.begin(), allowed.end(), given) != allowed.end();
  TS_CHECK(known, variable, "\"{}\" was given, allowed {} {}", given, allowed.size() == 1 ? "is" : "are",
           fmt::join(allowed, ", "));
  return given;
}

}  // namespace tessera
