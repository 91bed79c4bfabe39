// What the user may say about cuDNN.
//
//   TESSERA_CUDNN=0   convolutions by our own kernels only: slow, for comparison.
#pragma once

namespace tessera::cuda {

bool cudnn_allowed();
void allow_cudnn(bool allowed);

}  // namespace tessera::cuda
