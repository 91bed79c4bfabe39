// The groups of measurements. All are collective over settings.world.
#pragma once
#include "bench/report.h"

namespace tessera::bench {

// What the host may spend on one call whose tensors are on a device.
constexpr double kDeviceCallLimit = 5e-6;

// What a sharded call that needs no message costs on top of the plain one.
void overhead(const Settings& settings, Report& report);
// On several devices: what the host spends on calls that send.
void sending(const Settings& settings, Report& report);
// Re-cut and redistribute against bare MPI.
void recut(const Settings& settings, Report& report);
// Convolutions cut along a spatial dim against the same local convolutions.
void halo_conv(const Settings& settings, Report& report);
// Pools and interpolation cut along rows against the same local operation.
void halo_windows(const Settings& settings, Report& report);
// Ring attention against local attention over the same work.
void ring(const Settings& settings, Report& report);
// A whole training step of a vision transformer: on one rank as it is, on several cut along the height.
void vit_step(const Settings& settings, Report& report);
// The same of a convolution network with group norms.
void conv_step(const Settings& settings, Report& report);
// The vision transformer's, beside the uncut model on every rank at once.
void vit_scaling(const Settings& settings, Report& report);
// A training step of the model and shapes that tessera-winds ships.
void winds_step(const Settings& settings, Report& report);
// k nearest neighbours in a cloud that is cut over the ranks.
void points(const Settings& settings, Report& report);
// Local kernels, in GF/s and GB/s.
void kernels(const Settings& settings, Report& report);
// Convolutions, products and attention on a device, beside bare calls of its libraries.
void device_kernels(const Settings& settings, Report& report);

}  // namespace tessera::bench
