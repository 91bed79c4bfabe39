#include "train/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <span>

#include "runtime/error.h"
#include "runtime/one_line.h"

namespace tessera {
namespace {

// One text, with an end behind every argument.
std::string joined(int argc, char** argv) {
  std::string all;
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0))
    (all += argument) += '\0';
  return all;
}

void check_same_arguments(const std::string& program, int argc, char** argv, const Communicator& world) {
  const std::vector<std::string> all = world.all_gather_bytes(joined(argc, argv));
  for (std::size_t r = 1; r < all.size(); ++r) {
    const std::string& here = all[r];
    const std::string& first = all[0];
    if (here == first) continue;
    // The argument in which they differ first; what has ended is "".
    std::size_t at = 0;
    std::size_t begin = 0;
    for (; at < std::min(here.size(), first.size()) && here[at] == first[at]; ++at)
      if (here[at] == '\0') begin = at + 1;
    const auto argument = [begin](const std::string& of) { return std::string(of.c_str() + begin); };
    TS_FAIL(
        Usage, program.c_str(),
        "all ranks must be given the same arguments, but rank {} was given '{}' where rank 0 was given '{}'",
        r, argument(here), argument(first));
  }
}

}  // namespace

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv, const Communicator& world) {
  app.failure_message([](const CLI::App* program, const CLI::Error& e) {
    return fmt::format("{}: {} (--help says what is allowed)\n", program->get_name(), one_line(e.what()));
  });
  check_same_arguments(app.get_name(), argc, argv, world);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return (world.rank() == 0 ? app.exit(e) : e.get_exit_code()) == 0 ? 0 : 1;
  }
  return std::nullopt;
}

}  // namespace tessera
