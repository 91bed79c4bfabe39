// Faults on purpose: TESSERA_EMULATED_MUTATION names one, and the tests must turn red.
//   events-done   events say at once that they have happened
//   skip-waits    every third wait of a stream for an event is left out
//   stride        matrices and tensors are read with a stride that is one too long, now and then
#pragma once
#include <string_view>

namespace tessera::emulated {

bool mutated(std::string_view name);

}  // namespace tessera::emulated
