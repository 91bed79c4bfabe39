#include "comm/mpi_cuda.h"

// MPI libraries declare it in one header or another; CMake has found one (cmake/Cuda.cmake).
extern "C" int MPIX_Query_cuda_support();  // NOLINT(readability-identifier-naming): MPI's name

namespace tessera {

bool mpi_is_cuda_aware() { return MPIX_Query_cuda_support() != 0; }

}  // namespace tessera
