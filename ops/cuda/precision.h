// How exactly products of f32 are worked out on the device.
#pragma once

namespace tessera::cuda {

// Tensor cores round operands of f32 products to ten bits (TF32): several times faster, relative errors of
// about 1e-3. Off unless TESSERA_TF32=1 or set here; one answer for the whole process.
bool tf32_allowed();
void allow_tf32(bool allowed);

}  // namespace tessera::cuda
