// Options one by one: their values, limits and texts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/error.h"
#include "train/config.h"

namespace tessera::train {
namespace {

template <class T>
bool parse_number(const std::string& text, T& value) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, value);
  return result.ec == std::errc() && result.ptr == end && begin != end;
}

// The end of T's numbers that `text` lies beyond if it is an integer: "" if neither.
template <class T>
std::string exceeded_limit(const std::string& text) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  T value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ec != std::errc::result_out_of_range || result.ptr != end) return "";
  using Limits = std::numeric_limits<T>;
  return text.starts_with('-') ? fmt::format("at least {}", Limits::min())
                               : fmt::format("at most {}", Limits::max());
}

// Of what stands with brackets and spaces, as files and --help have it, or without.
std::vector<std::string> parts_of(std::string list) {
  if (list.size() >= 2 && list.front() == '[' && list.back() == ']') list = list.substr(1, list.size() - 2);
  std::vector<std::string> parts;
  for (std::size_t at = 0, end = 0; at <= list.size(); at = end + 1) {
    end = std::min(list.find(',', at), list.size());
    while (at < end && list[at] == ' ') ++at;
    std::size_t last = end;
    while (last > at && list[last - 1] == ' ') --last;
    parts.push_back(list.substr(at, last - at));
  }
  return parts;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// The shortest text that gives the same double, and is seen to be one.
std::string shortest(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

MeshAxes parse_mesh(const std::string& text) {
  MeshAxes axes;
  const auto refuse = [&](const std::string& why) {
    TS_FAIL(Usage, "mesh", "'{}' {}; a mesh is written NAME=N,NAME=N,... such as ddp=2,domain=2", text, why);
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t equals = part.find('=');
    int size = 0;
    if (equals == std::string::npos || equals == 0) refuse(fmt::format("has the part '{}'", part));
    const std::string name = part.substr(0, equals);
    const std::string number = part.substr(equals + 1);
    if (const std::string limit = exceeded_limit<int>(number); limit.starts_with("at most"))
      refuse(fmt::format("gives axis '{}' no size of {}", name, limit));
    if (!parse_number(number, size) || size < 1)
      refuse(fmt::format("gives axis '{}' no size of at least 1", name));
    for (const auto& axis : axes)
      if (axis.first == name) refuse(fmt::format("names axis '{}' twice", name));
    axes.emplace_back(name, size);
    if (comma + 1 == text.size()) refuse("ends with a comma");
    at = comma + 1;
  }
  return axes;
}

std::string format_mesh(const MeshAxes& axes) {
  std::string text;
  for (const auto& [name, size] : axes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, size);
  return text;
}

Option::Option(std::string key, Target target, std::string help)
    : key_(std::move(key)), target_(target), help_(std::move(help)), default_(value()) {}

Option& Option::unit(std::string text) {
  unit_ = std::move(text);
  return *this;
}
Option& Option::flag(std::string name) {
  flags_.push_back(std::move(name));
  return *this;
}
Option& Option::at_least(double low) {
  low_ = low;
  return *this;
}
Option& Option::at_most(double high) {
  high_ = high;
  return *this;
}
Option& Option::below(double high) {
  high_ = high;
  high_open_ = true;
  return *this;
}
Option& Option::positive() {
  low_ = 0.0;
  low_open_ = true;
  return *this;
}
Option& Option::choices(std::vector<std::string> allowed) {
  choices_ = std::move(allowed);
  return *this;
}
Option& Option::own_of_rank() {
  own_of_rank_ = true;
  return *this;
}

std::string Option::value() const {
  struct Visitor {
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const int* v) const { return fmt::format("{}", *v); }
    std::string operator()(const std::int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const double* v) const { return shortest(*v); }
    std::string operator()(const std::string* v) const { return quoted(*v); }
    std::string operator()(const std::vector<int>* v) const {
      return fmt::format("[{}]", fmt::join(*v, ", "));
    }
    std::string operator()(const MeshAxes* v) const { return quoted(format_mesh(*v)); }
  };
  return std::visit(Visitor{}, target_);
}

std::string Option::type() const {
  static constexpr const char* kNames[] = {"true or false", "integer",          "integer",  "number",
                                           "text",          "list of integers", "mesh axes"};
  return kNames[target_.index()];
}

std::string Option::allowed(const std::string& given) const {
  if (!choices_.empty()) return fmt::format("one of {}", fmt::join(choices_, ", "));
  std::string text = type();
  if (text == "integer") text = "an integer";
  if (text == "number") text = "a number";
  if (text == "list of integers") text = "a list of integers";
  if (text == "mesh axes") text = "NAME=N,NAME=N,... such as ddp=2,domain=2";
  if (low_) text += fmt::format("{} {}", low_open_ ? " above" : " of at least", *low_);
  if (high_) text += fmt::format("{} {} {}", low_ ? " and" : "", high_open_ ? "below" : "at most", *high_);
  // A program's own limits say it all at the side that they are for.
  const std::string limit = exceeded(given);
  if (limit.starts_with("at least") && !low_) text += fmt::format("{} of {}", high_ ? " and" : "", limit);
  if (limit.starts_with("at most") && !high_) text += fmt::format(" {} {}", low_ ? "and" : "of", limit);
  return text;
}

std::string Option::exceeded(const std::string& given) const {
  if (std::holds_alternative<int*>(target_)) return exceeded_limit<int>(given);
  if (std::holds_alternative<std::int64_t*>(target_)) return exceeded_limit<std::int64_t>(given);
  if (!std::holds_alternative<std::vector<int>*>(target_)) return "";
  for (const std::string& part : parts_of(given))
    if (std::string limit = exceeded_limit<int>(part); !limit.empty()) return limit;
  return "";
}

bool Option::in_range(double number) const {
  if (low_ && (low_open_ ? number <= *low_ : number < *low_)) return false;
  if (high_ && (high_open_ ? number >= *high_ : number > *high_)) return false;
  return true;
}

// `whole`: it was written as an integer.
bool Option::store(double number, bool whole) {
  if (!in_range(number)) return false;
  if (auto* d = std::get_if<double*>(&target_)) {
    if (!std::isfinite(number)) return false;
    **d = number;
    return true;
  }
  if (auto* i = std::get_if<int*>(&target_)) {
    if (!whole || number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max())
      return false;
    **i = static_cast<int>(number);
    return true;
  }
  return false;
}

bool Option::store_list(const std::string& text) {
  std::vector<int> list;
  for (const std::string& part : parts_of(text)) {
    int number = 0;
    if (!parse_number(part, number) || !in_range(number)) return false;
    list.push_back(number);
  }
  *std::get<std::vector<int>*>(target_) = std::move(list);
  return true;
}

bool Option::store(const std::string& text) {
  if (std::holds_alternative<std::vector<int>*>(target_)) return store_list(text);
  if (auto* b = std::get_if<bool*>(&target_)) {
    if (text != "true" && text != "false") return false;
    **b = text == "true";
    return true;
  }
  if (auto* s = std::get_if<std::string*>(&target_)) {
    if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), text) == choices_.end())
      return false;
    **s = text;
    return true;
  }
  if (auto* m = std::get_if<MeshAxes*>(&target_)) {
    **m = parse_mesh(text);
    return true;
  }
  std::int64_t integer = 0;
  if (parse_number(text, integer)) {
    if (auto* l = std::get_if<std::int64_t*>(&target_)) {  // not by way of a double, which has 53 bits
      if (!in_range(static_cast<double>(integer))) return false;
      **l = integer;
      return true;
    }
    return store(static_cast<double>(integer), true);
  }
  double number = 0;
  return parse_number(text, number) && store(number, false);
}

}  // namespace tessera::train
