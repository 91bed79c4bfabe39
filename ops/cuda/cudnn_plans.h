// The plans of this process by what they depend on, built at first use. The 1024 convolutions and as many
// calls of attention that were asked for last are kept; an older plan goes when the device is done with it,
// or with the graph (runtime/graph.h) that it was captured for.
//
// Plans are read from the file of ops/plan_cache.h, if there is one, and new ones are added to it.
//   TESSERA_CUDNN_RECORD=file   every graph that a plan is asked for is added to it as a line of JSON (what
//                               the test cudnn_plans reads)
#pragma once
#include <memory>

#include "ops/cuda/cudnn_graphs.h"

namespace tessera::cuda {

// Refuses (kind Backend) with cuDNN's words where it has no plan; names `op`.
std::shared_ptr<GraphPlan> plan_of(const char* op, const ConvGraph& graph);
std::shared_ptr<GraphPlan> plan_of(const char* op, const AttentionGraph& graph);
// Of the device that this process drives, as 90 for 9.0.
int compute_capability();
// How often graphs were run in this process.
std::int64_t plan_runs();
// Launch the graph's plan on the current stream, with memory of our allocator.
void run_graph(const char* op, const ConvGraph& graph, std::span<const GraphPointer> pointers);
void run_graph(const char* op, const AttentionGraph& graph, std::span<const GraphPointer> pointers);

}  // namespace tessera::cuda
