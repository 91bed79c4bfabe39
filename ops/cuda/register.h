// What the files of this folder put into the tables of kernels when the library starts, one function a
// family.
#pragma once

namespace tessera::cuda {

void register_convolutions();
void register_pointwise();
void register_reductions();
void register_products();
void register_attention();
void register_scans();
void register_rows();
void register_losses();
void register_channel_norms();
void register_indexing();
void register_windows();

}  // namespace tessera::cuda
