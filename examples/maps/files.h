// Where data lie, and files of numbers for pictures.
#pragma once
#include <string>

#include "comm/communicator.h"

namespace tessera::maps {

// `given` if it is not empty, else the file `name` where Debian's package ferret-datasets (or $FER_DATA of
// the Ferret program) puts it; refuses with the list of places when none has it.
std::string find_ferret_file(const char* op, const std::string& given, const std::string& name);
// The same on every rank; where one rank finds none, all refuse.
std::string find_on_all(const Communicator& world, const char* op, const std::string& given,
                        const std::string& name);

// Refuses (kind Io) what cannot be written.
void write_text(const char* op, const std::string& path, const std::string& text);

}  // namespace tessera::maps
