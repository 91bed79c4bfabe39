#include "train/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "runtime/one_line.h"

namespace tessera {

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv, const Communicator& world) {
  app.failure_message([](const CLI::App* program, const CLI::Error& e) {
    return fmt::format("{}: {} (--help says what is allowed)\n", program->get_name(), one_line(e.what()));
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return (world.rank() == 0 ? app.exit(e) : e.get_exit_code()) == 0 ? 0 : 1;
  }
  return std::nullopt;
}

}  // namespace tessera
