#pragma once
#include "ops/cpu/class_loss.h"
#include "ops/cpu/pair_loss.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::PairLossArgs&)> pair_loss;
extern Kernel<void(const cpu::PairLossArgs&)> pair_loss_sum;
extern Kernel<void(const cpu::UnitRangeArgs&)> unit_range;
extern Kernel<void(const cpu::ClassRowsArgs&)> class_rows;
extern Kernel<void(const cpu::ClassLossArgs&)> class_loss;
extern Kernel<void(const cpu::ClassTotalArgs&)> class_total;
extern Kernel<void(const cpu::ClassGradientArgs&)> class_loss_gradient;

}  // namespace tessera::kernels
