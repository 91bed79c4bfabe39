#include "ops/indexing/kernels.h"

namespace tessera::kernels {

Kernel<void(const cpu::IndexArgs&)> take_rows{"take_rows", &cpu::take_rows};
Kernel<void(const cpu::IndexArgs&)> put_rows{"put_rows", &cpu::put_rows};
Kernel<void(const cpu::IndexArgs&)> take_elements{"take_elements", &cpu::take_elements};
Kernel<void(const cpu::IndexArgs&)> put_elements{"put_elements", &cpu::put_elements};
Kernel<void(const cpu::OwnNumbersArgs&)> own_numbers{"own_numbers", &cpu::own_numbers};
Kernel<void(const cpu::OrderRowsArgs&)> order_rows{"order_rows", &cpu::order_rows};
Kernel<void(const cpu::MedianArgs&)> median{"median", &cpu::median};
Kernel<void(const cpu::OrderItemsArgs&)> order_items{"order_items", &cpu::order_items};
Kernel<void(const cpu::CutRowsArgs&)> cut_rows{"cut_rows", &cpu::cut_rows};

}  // namespace tessera::kernels
