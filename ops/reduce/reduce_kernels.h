// The kernels of reductions that have no other header (see runtime/kernel.h).
#pragma once
#include "ops/cpu/exp_rows.h"
#include "ops/cpu/power_sums.h"
#include "ops/cpu/prod_gradient.h"
#include "ops/reduce/extremum_index.h"
#include "ops/reduce/scan.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::ExpRowsArgs&)> exp_rows;
extern Kernel<void(const cpu::PieceSumsArgs&)> piece_sums;
extern Kernel<void(const cpu::RunningSumsArgs&)> running_sums;
extern Kernel<void(const cpu::ExtremumIndexArgs&)> extremum_index;
extern Kernel<void(const cpu::MergeExtremaArgs&)> merge_extrema;
extern Kernel<void(const cpu::PowerSumsArgs&)> power_sums;
extern Kernel<void(const cpu::ProdGradientArgs&)> prod_gradient;

}  // namespace tessera::kernels
