// Texts for one line of a terminal.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

// Control characters as they are written in a program: what a user or a foreign library put into a message
// must not break its line, nor speak to the terminal.
std::string one_line(std::string_view text);

}  // namespace tessera
