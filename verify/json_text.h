// JSON as Python's json module reads and writes it: beside finite numbers it knows NaN, Infinity and
// -Infinity, which the standard and the JSON library lack.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

namespace tessera::verify {

// Throws json::exception for what neither knows.
nlohmann::json parse_json(const std::string& text);
std::string json_text(const nlohmann::json& value);

}  // namespace tessera::verify
