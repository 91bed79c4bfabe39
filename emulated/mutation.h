// Faults on purpose: TESSERA_EMULATED_MUTATION names some, with commas between them, and the tests must turn
// red.
//   events-done   events say at once that they have happened
//   reuse-early   the stream that was made first waits for no event of another: memory that those still
//                 use is written over, as it would be without the guard that keeps it until they are done
//   skip-waits    every third wait of a stream for an event is left out
//   skip-waits=N  only the N-th of the waits for what has not happened yet is left out; 0: none, and the
//                 process says at its end how many there were
//   no-poison     memory that was given back keeps its values until it is used again; no fault of the
//   library's:
//                 shows what only the poison finds
//   one-stream    every stream is the one that was made first: messages take turns with what is computed. No
//                 number is wrong
//   wait-at-once  the stream that was made first waits for messages as soon as they are posted. No number is
//                 wrong
//   refuse-products  cuBLASLt's heuristic has no algorithm for half of the shapes, which the seed draws; no
//                 fault: our own kernel multiplies instead
//   stride        matrices and tensors are read with a stride that is one too long
#pragma once
#include <string_view>

namespace tessera::emulated {

bool mutated(std::string_view name);

}  // namespace tessera::emulated
