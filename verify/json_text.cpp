#include "verify/json_text.h"

#include <cmath>
#include <limits>
#include <string_view>

namespace tessera::verify {
namespace {

using nlohmann::json;

// On their way through the JSON library these numbers are strings that begin with a zero byte.
struct Special {
  std::string_view token;
  const char* quoted;  // in JSON
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Special kSpecial[] = {{"NaN", "\"\\u0000NaN\"", std::numeric_limits<double>::quiet_NaN()},
                                {"Infinity", "\"\\u0000Infinity\"", kInfinity},
                                {"-Infinity", "\"\\u0000-Infinity\"", -kInfinity}};

const Special* special_at(std::string_view text) {
  for (const Special& s : kSpecial)
    if (text.starts_with(s.token)) return &s;
  return nullptr;
}

const Special* special_of(const json& value) {
  if (!value.is_string()) return nullptr;
  const auto& text = value.get_ref<const std::string&>();
  for (const Special& s : kSpecial)
    if (text.size() == s.token.size() + 1 && text[0] == '\0' && text.ends_with(s.token)) return &s;
  return nullptr;
}

std::string without_tokens(std::string_view text) {
  std::string out;
  bool inside = false;  // of a string
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!inside) {
      if (const Special* s = special_at(text.substr(i))) {
        out += s->quoted;
        i += s->token.size() - 1;
        continue;
      }
    }
    if (text[i] == '"') inside = !inside;
    out += text[i];
    if (inside && text[i] == '\\' && i + 1 < text.size()) out += text[++i];
  }
  return out;
}

json without_special(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double x = value.get<double>();
    const Special& s = std::isnan(x) ? kSpecial[0] : x > 0 ? kSpecial[1] : kSpecial[2];
    return std::string(1, '\0') + std::string(s.token);
  }
  json copy = value;
  if (value.is_structured())
    for (json& part : copy) part = without_special(part);
  return copy;
}

}  // namespace

json parse_json(const std::string& text) {
  const auto numbers = [](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::value)
      if (const Special* s = special_of(value)) value = s->value;
    return true;
  };
  return json::parse(without_tokens(text), numbers);
}

std::string json_text(const json& value) {
  std::string text = without_special(value).dump();
  for (const Special& s : kSpecial)
    for (std::size_t at = text.find(s.quoted); at != std::string::npos; at = text.find(s.quoted, at))
      text.replace(at, std::string_view(s.quoted).size(), s.token);
  return text;
}

}  // namespace tessera::verify
