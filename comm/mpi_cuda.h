#pragma once

namespace tessera {

// Whether the MPI library says that it takes addresses of CUDA device memory. False where it cannot be asked;
// it may take them all the same. MPI runs.
bool mpi_is_cuda_aware();

}  // namespace tessera
