#pragma once
#include "ops/cpu/channel_norm.h"
#include "ops/cpu/norm_parts.h"
#include "ops/cpu/rms_norm.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::ChannelMomentsArgs&)> channel_moments;
extern Kernel<void(const cpu::FinishStatisticsArgs&)> finish_statistics;
extern Kernel<void(const cpu::GivenStatisticsArgs&)> given_statistics;
extern Kernel<void(const cpu::MoveRunningArgs&)> move_running;
extern Kernel<void(const cpu::ChannelNormArgs&)> channel_norm;
extern Kernel<void(const cpu::ChannelSumsArgs&)> channel_norm_sums;
extern Kernel<void(const cpu::ChannelGradientArgs&)> channel_norm_gradient;
extern Kernel<void(const cpu::NormSumsArgs&)> layer_norm_sums;
extern Kernel<void(const cpu::NormGradientArgs&)> layer_norm_gradient;
extern Kernel<void(const cpu::RowSquaresArgs&)> row_squares;
extern Kernel<void(const cpu::RmsNormArgs&)> rms_norm;
extern Kernel<void(const cpu::RowDotsArgs&)> row_dots;
extern Kernel<void(const cpu::RmsNormBackwardArgs&)> rms_norm_backward;

}  // namespace tessera::kernels
