// Switches that the user sets in the environment.
#pragma once
#include <initializer_list>
#include <string_view>

namespace tessera {

// Whether the variable is 1 or 0; `otherwise` where it is not set or empty. Refuses anything else by its
// name.
bool environment_switch(const char* variable, bool otherwise);
// Which of `allowed` the variable is; "" where it is not set or empty. Refuses anything else likewise.
std::string_view environment_choice(const char* variable, std::initializer_list<std::string_view> allowed);

}  // namespace tessera
