// The command line of a program that runs on many ranks.
#pragma once
#include <optional>

#include "comm/communicator.h"

namespace CLI {
class App;
}

namespace tessera {

// Collective: refuses arguments that are not the same on all ranks. The exit status where the program ends
// here: 0 after --help, 1 after a wrong argument, which rank 0 alone reports.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv, const Communicator& world);

}  // namespace tessera
