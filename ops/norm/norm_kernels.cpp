#include "ops/norm/norm_kernels.h"

namespace tessera::kernels {

Kernel<void(const cpu::ChannelMomentsArgs&)> channel_moments{"channel_moments", &cpu::channel_moments};
Kernel<void(const cpu::FinishStatisticsArgs&)> finish_statistics{"finish_statistics",
                                                                 &cpu::finish_statistics};
Kernel<void(const cpu::GivenStatisticsArgs&)> given_statistics{"given_statistics", &cpu::given_statistics};
Kernel<void(const cpu::MoveRunningArgs&)> move_running{"move_running", &cpu::move_running};
Kernel<void(const cpu::ChannelNormArgs&)> channel_norm{"channel_norm", &cpu::channel_norm};
Kernel<void(const cpu::ChannelSumsArgs&)> channel_norm_sums{"channel_norm_sums", &cpu::channel_norm_sums};
Kernel<void(const cpu::ChannelGradientArgs&)> channel_norm_gradient{"channel_norm_gradient",
                                                                    &cpu::channel_norm_gradient};
Kernel<void(const cpu::NormSumsArgs&)> layer_norm_sums{"layer_norm_sums", &cpu::layer_norm_sums};
Kernel<void(const cpu::NormGradientArgs&)> layer_norm_gradient{"layer_norm_gradient",
                                                               &cpu::layer_norm_gradient};
Kernel<void(const cpu::RowSquaresArgs&)> row_squares{"row_squares", &cpu::row_squares};
Kernel<void(const cpu::RmsNormArgs&)> rms_norm{"rms_norm", &cpu::rms_norm};
Kernel<void(const cpu::RowDotsArgs&)> row_dots{"row_dots", &cpu::row_dots};
Kernel<void(const cpu::RmsNormBackwardArgs&)> rms_norm_backward{"rms_norm_backward", &cpu::rms_norm_backward};

}  // namespace tessera::kernels
