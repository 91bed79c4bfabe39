// What the backend's sources put into the tables of the library when it starts.
#pragma once

namespace tessera::cuda {

void register_copies();
void register_graphs();
void register_random();

}  // namespace tessera::cuda
