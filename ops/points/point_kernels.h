// The kernels of this folder, one row of function pointers each (see runtime/kernel.h).
#pragma once
#include "ops/points/regions.h"
#include "ops/points/search.h"
#include "runtime/kernel.h"

namespace tessera::kernels::points {

extern Kernel<void(const cpu::points::BuildTreeArgs&)> build_tree;
extern Kernel<void(const Array&, const Array&, const Array&)> first_unordered;
extern Kernel<void(const cpu::points::NearestArgs&)> nearest;
extern Kernel<void(const cpu::points::NearestOfFewArgs&)> nearest_of_few;
extern Kernel<void(const cpu::points::WithinRadiusArgs&)> within_radius;
extern Kernel<void(const cpu::points::SortListsArgs&)> sort_lists;
extern Kernel<void(const Array&, const Array&, const Array&)> pad_rows;
extern Kernel<void(const cpu::points::WithinReachArgs&)> within_reach;
extern Kernel<void(const cpu::points::AnyNearArgs&)> any_near;
extern Kernel<void(const cpu::points::OthersNearerArgs&)> others_nearer;
extern Kernel<void(const cpu::points::QueryReachArgs&)> query_reach;

extern Kernel<void(const cpu::points::ExpectedRowsArgs&)> expected_rows;
extern Kernel<void(const cpu::points::CellsNearArgs&)> cells_near;
extern Kernel<void(const cpu::points::AssignRegionsArgs&)> assign_regions;

}  // namespace tessera::kernels::points
