// Options of a training program: one registry, three sources.
//
// A program registers its options, each bound to one of its variables whose value is the default. A TOML file
// may set them, and the command line overrides both:
//
//   Config config("tessera-winds", "Trains a vision transformer on monthly winds.");
//   config.add("steps", &steps, "optimizer steps").at_least(1);
//   config.add("model.width", &width, "features per token").at_least(1);
//   config.add("learning_rate", &rate, "peak learning rate").flag("lr").positive();
//   if (config.parse(argc, argv)) { print config.help(); return 0; }
//
// In the file, "model.width" is the key `width` of table `[model]`. On the command line it is
// `--model.width 96` or `--model.width=96`, and also `--width` where no other key ends so; `_` and `-` are
// the same there. A bool is `--flag`, `--flag=false` or `--no-flag`. `--config FILE` and `--help` belong to
// every program.
//
// Every rank parses alike and comes to the same values or the same error (kind Usage; Io for a file that
// cannot be read). Whether the file is readable only this rank knows: where ranks have different file
// systems, wrap `parse` with `agree` of comm/communicator.h. What a rank alone was told otherwise (an old
// file on one of the hosts) is refused by `check_same`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {
class Communicator;
}

namespace tessera::train {

// Named mesh axes in order, "ddp=2,domain=2".
using MeshAxes = std::vector<std::pair<std::string, int>>;
// Refuses (kind Usage) what is not NAME=N,NAME=N,... with N >= 1 and each name once. "" is no axes.
MeshAxes parse_mesh(const std::string& text);
std::string format_mesh(const MeshAxes& axes);

class Option {
 public:
  using Target =
      std::variant<bool*, int*, std::int64_t*, double*, std::string*, std::vector<int>*, MeshAxes*>;

  Option(std::string key, Target target, std::string help);

  // Further words, each returns the option itself.
  Option& unit(std::string text);  // shown in the help: "steps", "m/s"
  Option& flag(std::string name);  // another name on the command line, without "--"
  Option& at_least(double low);    // numbers
  Option& at_most(double high);
  Option& below(double high);
  Option& positive();
  Option& choices(std::vector<std::string> allowed);  // text
  Option& own_of_rank();  // ranks may have different values: a path in file systems that are not shared

  const std::string& key() const { return key_; }
  const std::string& source() const { return source_; }  // "default", "file:line" or "command line"
  std::string value() const;                             // as it would be written in TOML
  std::string type() const;                              // "integer", "list of integers", "text", ...

 private:
  friend class Config;
  // "an integer of at least 1"; what the type can hold is said where `given` goes beyond it.
  std::string allowed(const std::string& given = "") const;
  std::string exceeded(const std::string& given) const;
  bool store(const std::string& text);
  bool store(double number, bool whole);
  bool store_list(const std::string& text);
  bool in_range(double number) const;

  std::string key_;
  Target target_;
  std::string help_;
  std::string unit_;
  std::vector<std::string> flags_;
  std::optional<double> low_, high_;
  bool low_open_ = false;
  bool high_open_ = false;
  bool own_of_rank_ = false;
  std::vector<std::string> choices_;
  std::string default_;
  std::string source_ = "default";
};

class Config {
 public:
  Config(std::string program, std::string summary);

  // `target` keeps the default until parse() and must outlive this object. The reference stays valid.
  Option& add(const std::string& key, Option::Target target, const std::string& help);
  // Begins a headed group in the help: all options added from here on.
  void section(const std::string& title);

  // True if help was asked for (then nothing else is looked at).
  bool parse(int argc, const char* const* argv);
  bool parse(const std::vector<std::string>& arguments);  // without the program's name
  // Collective. Refuses, on every rank alike, values that are not the same on all ranks: names the first
  // such option, the values, where they come from and who has which; also help that not all were asked for.
  void check_same(const Communicator& world) const;
  // The file alone: as `--config`.
  void read_file(const std::string& path);
  void read_text(const std::string& toml, const std::string& name);  // `name` stands for the file in errors

  std::string help() const;
  // All options with their values and where they come from: a TOML file that sets the same values again.
  std::string dump() const;
  // One JSON object: key -> value, for the first line of metrics.jsonl.
  std::string json() const;
  const std::string& file() const { return file_; }  // "" if none was given

 private:
  struct Entry {
    std::string section;
    std::unique_ptr<Option> option;
  };
  struct Found;
  Option* by_key(const std::string& key) const;
  Option* by_flag(const std::string& name) const;
  bool ends_alone(const std::string& last) const;
  std::string known_keys(const std::string& wanted) const;
  std::size_t take_argument(const std::vector<std::string>& arguments, std::size_t at);

  std::string program_;
  std::string summary_;
  std::string section_;
  std::vector<Entry> entries_;
  std::string file_;
  bool help_asked_ = false;
};

}  // namespace tessera::train
