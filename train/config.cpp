#include "train/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "runtime/error.h"

namespace tessera::train {
namespace {

constexpr const char* kOp = "config";

// Letters to change, add or drop to get from one word to the other (Levenshtein).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// "_" and "-" are the same on the command line.
std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

struct Leaf {
  std::string key;
  std::string text;
  std::string kind;  // what TOML calls it, for messages
  unsigned line = 0;
};

void collect(const toml::table& table, const std::string& prefix, std::vector<Leaf>& leaves) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    Leaf leaf{key, "", "", static_cast<unsigned>(node.source().begin.line)};
    if (const toml::table* inner = node.as_table()) {
      collect(*inner, key + ".", leaves);
      continue;
    }
    if (const auto* b = node.as_boolean()) {
      leaf = {key, b->get() ? "true" : "false", "true or false", leaf.line};
    } else if (const auto* i = node.as_integer()) {
      leaf = {key, fmt::format("{}", i->get()), "integer", leaf.line};
    } else if (const auto* f = node.as_floating_point()) {
      const std::string text = fmt::format("{}", f->get());
      const bool plain = text.find_first_of(".einf") == std::string::npos;
      leaf = {key, plain ? text + ".0" : text, "number", leaf.line};
    } else if (const auto* s = node.as_string()) {
      leaf = {key, s->get(), "text", leaf.line};
    } else if (const auto* list = node.as_array(); list != nullptr && list->is_homogeneous<std::int64_t>()) {
      leaf.kind = "list of integers";
      for (const auto& element : *list)
        leaf.text += fmt::format("{}{}", leaf.text.empty() ? "" : ",", **element.as_integer());
    } else {
      leaf.kind = node.is_array() ? "list" : "date or time";
      if (const toml::array* mixed = node.as_array()) {
        std::ostringstream as_written;
        as_written << *mixed;
        leaf.text = as_written.str();
      }
    }
    leaves.push_back(std::move(leaf));
  }
}

bool kinds_agree(const std::string& in_file, const std::string& wanted) {
  if (in_file == wanted) return true;
  return (in_file == "integer" && wanted == "number") || (in_file == "text" && wanted == "mesh axes");
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  const bool empty = in && in.peek() == std::ifstream::traits_type::eof() && !in.bad();
  if (!empty && !(text << in.rdbuf())) TS_FAIL(Io, kOp, "file '{}' cannot be read", path);
  return text.str();
}

}  // namespace

Config::Config(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

Option& Config::add(const std::string& key, Option::Target target, const std::string& help) {
  TS_CHECK(by_key(key) == nullptr, kOp, "option '{}' is registered twice", key);
  entries_.push_back({section_, std::make_unique<Option>(key, target, help)});
  return *entries_.back().option;
}

void Config::section(const std::string& title) { section_ = title; }

Option* Config::by_key(const std::string& key) const {
  for (const Entry& e : entries_)
    if (e.option->key_ == key) return e.option.get();
  return nullptr;
}

// No other key ends in the same word, and no option has it as its flag or whole key.
bool Config::ends_alone(const std::string& last) const {
  int n = 0;
  for (const Entry& e : entries_) {
    const auto& flags = e.option->flags_;
    n += dashed(last_part(e.option->key_)) == dashed(last) ||
         std::find(flags.begin(), flags.end(), last) != flags.end();
  }
  return n == 1;
}

Option* Config::by_flag(const std::string& name) const {
  for (const Entry& e : entries_) {
    if (dashed(e.option->key_) == dashed(name)) return e.option.get();
    for (const std::string& flag : e.option->flags_)
      if (dashed(flag) == dashed(name)) return e.option.get();
  }
  if (name.find('.') != std::string::npos || !ends_alone(name)) return nullptr;
  for (const Entry& e : entries_)
    if (dashed(last_part(e.option->key_)) == dashed(name)) return e.option.get();
  return nullptr;
}

// The nearest keys if some are near, else all of them.
std::string Config::known_keys(const std::string& wanted) const {
  std::vector<std::string> near;
  std::vector<std::string> all;
  const std::size_t letters = last_part(wanted).size();
  const std::size_t near_enough = letters < 5 ? 1 : std::max<std::size_t>(2, letters / 3);
  for (const Entry& e : entries_) {
    const std::string& key = e.option->key_;
    std::size_t d = std::min(distance(dashed(wanted), dashed(key)),
                             distance(dashed(last_part(wanted)), dashed(last_part(key))));
    for (const std::string& flag : e.option->flags_) d = std::min(d, distance(dashed(wanted), dashed(flag)));
    if (d <= near_enough) near.push_back(key);
    all.push_back(key);
  }
  if (!near.empty()) return fmt::format("did you mean {}?", fmt::join(near, " or "));
  return fmt::format("allowed are {}", fmt::join(all, ", "));
}

void Config::read_file(const std::string& path) {
  read_text(read_whole(path), path);
  file_ = path;
}

void Config::read_text(const std::string& text, const std::string& name) {
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& e) {
    std::string why(e.description());
    std::replace(why.begin(), why.end(), '\n', ' ');
    TS_FAIL(Usage, kOp, "{}:{}: {}", name, e.source().begin.line, why);
  }
  std::vector<Leaf> leaves;
  collect(table, "", leaves);
  // In the order of the file, so that the first fault of several is the one that is told.
  std::stable_sort(leaves.begin(), leaves.end(),
                   [](const Leaf& a, const Leaf& b) { return a.line < b.line; });
  for (const Leaf& leaf : leaves) {
    Option* option = by_key(leaf.key);
    if (option == nullptr)
      TS_FAIL(Usage, kOp, "{}:{}: unknown key '{}'; {}", name, leaf.line, leaf.key, known_keys(leaf.key));
    const bool stored = kinds_agree(leaf.kind, option->type()) && option->store(leaf.text);
    if (!stored)
      TS_FAIL(Usage, kOp, "{}:{}: key '{}' is {}; allowed is {}", name, leaf.line, leaf.key,
              leaf.text.empty()     ? "a " + leaf.kind
              : leaf.kind == "text" ? "\"" + leaf.text + "\""
                                    : leaf.text,
              option->allowed(leaf.text));
    option->source_ = fmt::format("{}:{}", name, leaf.line);
  }
}

bool Config::parse(int argc, const char* const* argv) {
  return parse(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

bool Config::parse(const std::vector<std::string>& arguments) {
  for (const std::string& a : arguments)
    if (a == "--help" || a == "-h") return help_asked_ = true;
  // The file first, wherever it stands: the command line overrides it.
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) read_file(arguments[i].substr(9));
    if (arguments[i] != "--config") continue;
    TS_CHECK(i + 1 < arguments.size(), kOp, "--config needs a file");
    read_file(arguments[i + 1]);
  }
  for (std::size_t i = 0; i < arguments.size();) i += take_argument(arguments, i);
  return false;
}

// How many arguments were used.
std::size_t Config::take_argument(const std::vector<std::string>& arguments, std::size_t at) {
  const std::string& argument = arguments[at];
  TS_CHECK(argument.starts_with("--") && argument.size() > 2, kOp,
           "argument '{}' is no option; options are written --name value (--help lists them)", argument);
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  if (name == "config") return equals == std::string::npos ? 2 : 1;
  Option* option = by_flag(name);
  std::string value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
  std::size_t used = 1;
  if (option == nullptr && name.starts_with("no-") && equals == std::string::npos) {
    option = by_flag(name.substr(3));
    if (option != nullptr && option->type() != "true or false") option = nullptr;
    value = "false";
  } else if (option != nullptr && equals == std::string::npos && option->type() != "true or false") {
    TS_CHECK(at + 1 < arguments.size(), kOp, "--{} needs a value: {}", name, option->allowed());
    value = arguments[at + 1];
    used = 2;
  }
  TS_CHECK(option != nullptr, kOp, "unknown option --{}; {}", name,
           known_keys(name.starts_with("no-") ? name.substr(3) : name));
  TS_CHECK(option->store(value), kOp, "--{} is '{}'; allowed is {}", name, value, option->allowed(value));
  option->source_ = "command line";
  return used;
}

std::string Config::help() const {
  std::string text =
      fmt::format("{}: {}\n\nUsage: {} [--config FILE] [--OPTION VALUE]...\n", program_, summary_, program_);
  text += "Every option is also a key of the TOML file; the command line overrides the file.\n";
  std::string section = "\n";
  const auto row = [&](const std::string& left, const std::string& right) {
    text += left.size() <= 26 ? fmt::format("  {:<26}  {}\n", left, right)
                              : fmt::format("  {}\n{:30}{}\n", left, "", right);
  };
  text += "\n";
  row("--config FILE", "TOML file to read first");
  row("--help", "this text");
  for (const Entry& e : entries_) {
    const Option& o = *e.option;
    if (e.section != section && !e.section.empty()) text += fmt::format("\n{}\n", e.section);
    section = e.section;
    std::string names = "--" + o.key_;
    for (const std::string& flag : o.flags_) names += ", --" + flag;
    const std::string last = last_part(o.key_);
    if (last != o.key_ && ends_alone(last)) names += ", --" + last;
    std::string limits;
    if (!o.choices_.empty() || o.low_ || o.high_ || o.type() == "mesh axes") limits = o.allowed() + "; ";
    row(names, fmt::format("{} [{}default {}{}]", o.help_, limits, o.default_,
                           o.unit_.empty() ? "" : " " + o.unit_));
  }
  return text;
}

std::string Config::dump() const {
  std::string text;
  std::string table;
  // A TOML table once opened holds all keys that follow: plain keys come first, then table by table.
  std::vector<const Option*> options;
  for (const Entry& e : entries_) options.push_back(e.option.get());
  const auto table_of = [](const Option* o) {
    const std::size_t dot = o->key_.rfind('.');
    return dot == std::string::npos ? std::string() : o->key_.substr(0, dot);
  };
  std::stable_sort(options.begin(), options.end(),
                   [&](const Option* a, const Option* b) { return table_of(a) < table_of(b); });
  for (const Option* o : options) {
    if (table_of(o) != table) text += fmt::format("\n[{}]\n", table = table_of(o));
    text += fmt::format("{:<40}  # {}\n", fmt::format("{} = {}", last_part(o->key_), o->value()), o->source_);
  }
  return text;
}

std::string Config::json() const {
  std::string text = "{";
  for (const Entry& e : entries_)
    text += fmt::format("{}\"{}\":{}", text.size() > 1 ? "," : "", e.option->key_, e.option->value());
  return text + "}";
}

}  // namespace tessera::train
