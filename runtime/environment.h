// Switches that the user sets in the environment.
#pragma once

namespace tessera {

// Whether the variable is 1 or 0; `otherwise` where it is not set or empty. Refuses anything else by its
// name.
bool environment_switch(const char* variable, bool otherwise);

}  // namespace tessera
