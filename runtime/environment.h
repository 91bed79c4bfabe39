// Switches that the user sets in the environment.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace tessera {

// Whether the variable is 1 or 0; `otherwise` where it is not set or empty. Refuses anything else by its
// name.
bool environment_switch(const char* variable, bool otherwise);
// Which of `allowed` the variable is; "" where it is not set or empty. Refuses anything else likewise.
std::string_view environment_choice(const char* variable, std::initializer_list<std::string_view> allowed);

// For settings that are read where they are first needed, in the middle of a run: `check` reads them, and
// refuses what is wrong, where a communicator is made from MPI's, or a device is first used (check_settings).
// Added while the library starts.
void add_settings_check(void (*check)());
void check_settings();

// For those that change results or messages: ranks that have others would not hold the same tensors, or would
// wait for each other. Compared where a communicator is made from MPI's. `value` refuses what is wrong, too.
void add_common_setting(const char* variable, std::string (*value)());
// A line of each, "variable=value", in the order of their names.
std::string common_settings();

}  // namespace tessera
