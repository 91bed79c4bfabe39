// The same model on every rank: made so, and checked.
#pragma once
#include "mesh/device_mesh.h"
#include "nn/module.h"

namespace tessera::train {

// All of these are collective over the mesh. Parameters and buffers must be plain tensors.

// Refuses, on every rank, unless all ranks have the same parameters and buffers: names, sizes, dtypes, in the
// same order. Names the first that differs. One small message where all is well.
void check_same_state(const nn::Module& module, const DeviceMesh& mesh);

// Gives every rank the values of mesh rank 0, in messages of up to 64 MiB. Checks first, as above.
void sync_module(const nn::Module& module, const DeviceMesh& mesh);

// Refuses unless parameters and buffers have the same bits on every rank, naming the first that differs and
// the ranks (compares 64-bit hashes).
void check_replicas(const nn::Module& module, const DeviceMesh& mesh);

}  // namespace tessera::train
