#include "ops/loss/loss_kernels.h"

namespace tessera::kernels {

Kernel<void(const cpu::PairLossArgs&)> pair_loss{"pair_loss", &cpu::pair_loss};
Kernel<void(const cpu::PairLossArgs&)> pair_loss_sum{"pair_loss_sum", &cpu::pair_loss_sum};
Kernel<void(const cpu::UnitRangeArgs&)> unit_range{"unit_range", &cpu::unit_range};
Kernel<void(const cpu::ClassRowsArgs&)> class_rows{"class_rows", &cpu::class_rows};
Kernel<void(const cpu::ClassLossArgs&)> class_loss{"class_loss", &cpu::class_loss};
Kernel<void(const cpu::ClassTotalArgs&)> class_total{"class_total", &cpu::class_total};
Kernel<void(const cpu::ClassGradientArgs&)> class_loss_gradient{"class_loss_gradient",
                                                                &cpu::class_loss_gradient};

}  // namespace tessera::kernels
