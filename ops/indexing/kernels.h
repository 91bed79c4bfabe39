// The kernels of indexing and order (see ops/kernels.h).
#pragma once
#include "ops/cpu/indexing.h"
#include "ops/cpu/order.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::IndexArgs&)> take_rows;
extern Kernel<void(const cpu::IndexArgs&)> put_rows;
extern Kernel<void(const cpu::IndexArgs&)> take_elements;
extern Kernel<void(const cpu::IndexArgs&)> put_elements;
extern Kernel<void(const cpu::OwnNumbersArgs&)> own_numbers;
extern Kernel<void(const cpu::OrderRowsArgs&)> order_rows;
extern Kernel<void(const cpu::MedianArgs&)> median;
extern Kernel<void(const cpu::OrderItemsArgs&)> order_items;
extern Kernel<void(const cpu::CutRowsArgs&)> cut_rows;

}  // namespace tessera::kernels
