// For MPI libraries that cannot be asked.
#include "comm/mpi_cuda.h"

namespace tessera {

bool mpi_is_cuda_aware() { return false; }

}  // namespace tessera
