// A hook that long CPU kernels and the autograd engine call between tiles and nodes, so that messages in
// flight move while we compute (MPI moves nothing by itself). Layers above install what it does.
#pragma once

namespace tessera {

using ProgressFunction = void (*)();
// Per thread; nullptr removes it. Cheap when nothing is installed.
void set_progress_function(ProgressFunction f);
ProgressFunction progress_function();
inline void poll_progress() {
  if (ProgressFunction f = progress_function()) f();
}

}  // namespace tessera
