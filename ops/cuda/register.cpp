// The column of the device in the tables of kernels. Kernels of its own are registered where they are written
// (ops/cuda/register.h); what is left works on the host.
#include "ops/cuda/register.h"

#include "ops/cuda/on_host.h"
#include "ops/cuda/precision.h"
#include "ops/cuda/settings.h"
#include "ops/indexing/kernels.h"
#include "ops/kernels.h"
#include "ops/points/point_kernels.h"
#include "runtime/environment.h"

namespace tessera::cuda {
namespace {

template <auto F, class Args>
void on_host(Kernel<void(const Args&)>& kernel) {
  kernel.set(Device::Cuda, &run_on_host<F, Args>);
}
template <auto F>
void three_on_host(Kernel<void(const Array&, const Array&, const Array&)>& kernel) {
  kernel.set(Device::Cuda, &run_three_on_host<F>);
}

void register_other_indexing() {
  on_host<&cpu::order_items>(kernels::order_items);
  on_host<&cpu::cut_rows>(kernels::cut_rows);
}

void register_points() {
  namespace k = kernels::points;
  namespace c = cpu::points;
  on_host<&c::build_tree>(k::build_tree);
  three_on_host<&c::first_unordered>(k::first_unordered);
  on_host<&c::nearest>(k::nearest);
  on_host<&c::nearest_of_few>(k::nearest_of_few);
  on_host<&c::within_radius>(k::within_radius);
  on_host<&c::sort_lists>(k::sort_lists);
  three_on_host<&c::pad_rows>(k::pad_rows);
  on_host<&c::within_reach>(k::within_reach);
  on_host<&c::any_near>(k::any_near);
  on_host<&c::others_nearer>(k::others_nearer);
  on_host<&c::query_reach>(k::query_reach);
  on_host<&c::expected_rows>(k::expected_rows);
  on_host<&c::cells_near>(k::cells_near);
  on_host<&c::assign_regions>(k::assign_regions);
}

const bool registered = [] {
  register_convolutions();
  register_pointwise();
  register_reductions();
  register_scans();
  register_rows();
  register_channel_norms();
  register_products();
  register_attention();
  register_losses();
  register_windows();
  register_indexing();
  register_other_indexing();
  register_points();
  add_common_setting("TESSERA_TF32", [] { return std::string(tf32_allowed() ? "1" : "0"); });
  add_common_setting("TESSERA_CUDNN", [] { return std::string(cudnn_allowed() ? "1" : "0"); });
  add_common_setting("TESSERA_ATTENTION_SCORES",
                     [] { return std::to_string(attention_score_bytes() >> 20); });
  add_common_setting("TESSERA_CUDNN_WORKSPACE", [] { return std::to_string(cudnn_workspace_bytes() >> 20); });
  return true;
}();

}  // namespace
}  // namespace tessera::cuda

extern "C" bool tessera_cuda_ops() { return tessera::cuda::registered; }
