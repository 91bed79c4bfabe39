#include "ops/points/point_kernels.h"

namespace tessera::kernels::points {

namespace cpu = ::tessera::cpu::points;

Kernel<void(const cpu::BuildTreeArgs&)> build_tree{"build_tree", &cpu::build_tree};
Kernel<void(const Array&, const Array&, const Array&)> first_unordered{"first_unordered",
                                                                       &cpu::first_unordered};
Kernel<void(const cpu::NearestArgs&)> nearest{"nearest", &cpu::nearest};
Kernel<void(const cpu::NearestOfFewArgs&)> nearest_of_few{"nearest_of_few", &cpu::nearest_of_few};
Kernel<void(const cpu::WithinRadiusArgs&)> within_radius{"within_radius", &cpu::within_radius};
Kernel<void(const cpu::SortListsArgs&)> sort_lists{"sort_lists", &cpu::sort_lists};
Kernel<void(const Array&, const Array&, const Array&)> pad_rows{"pad_rows", &cpu::pad_rows};
Kernel<void(const cpu::WithinReachArgs&)> within_reach{"within_reach", &cpu::within_reach};
Kernel<void(const cpu::AnyNearArgs&)> any_near{"any_near", &cpu::any_near};
Kernel<void(const cpu::OthersNearerArgs&)> others_nearer{"others_nearer", &cpu::others_nearer};
Kernel<void(const cpu::QueryReachArgs&)> query_reach{"query_reach", &cpu::query_reach};

Kernel<void(const cpu::ExpectedRowsArgs&)> expected_rows{"expected_rows", &cpu::expected_rows};
Kernel<void(const cpu::CellsNearArgs&)> cells_near{"cells_near", &cpu::cells_near};
Kernel<void(const cpu::AssignRegionsArgs&)> assign_regions{"assign_regions", &cpu::assign_regions};

}  // namespace tessera::kernels::points
