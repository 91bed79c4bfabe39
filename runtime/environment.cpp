#include "runtime/environment.h"

#include <cstdlib>
#include <string_view>

#include "runtime/error.h"

namespace tessera {

bool environment_switch(const char* variable, bool otherwise) {
  const char* text = std::getenv(variable);
  const std::string_view given = text == nullptr ? "" : text;
  if (given.empty()) return otherwise;
  TS_CHECK(given == "0" || given == "1", variable, "\"{}\" was given, allowed are 0 and 1", given);
  return given == "1";
}

}  // namespace tessera
