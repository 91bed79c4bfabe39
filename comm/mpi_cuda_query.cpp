#include <mpi.h>

// Where CMake found the question declared (cmake/Dependencies.cmake).
#include TESSERA_MPI_CUDA_HEADER

#include "comm/mpi_cuda.h"

namespace tessera {

bool mpi_is_cuda_aware() { return MPIX_Query_cuda_support() != 0; }

}  // namespace tessera
