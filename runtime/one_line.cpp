#include "runtime/one_line.h"

#include <fmt/core.h>

namespace tessera {

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (c == '\r') {
      line += "\\r";
    } else if (code < 0x20 || code == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace tessera
