// Captures and graphs of the emulated device.
//
// What is launched in a stream that is captured runs nothing: it becomes a node, which comes after the node
// before it in its stream and after those that an event, recorded in the same capture, stood for. A launch of
// the graph makes every node's task anew and runs them late, in an order that only these dependencies
// constrain, drawn by TESSERA_EMULATED_SEED. Arguments are those of the capture: who passes by value what
// changes gets old values.
//
// Refused as the real runtime does, and the capture is void then: waits of the host and queries of what is
// captured, copies from or to memory that is not page-locked, events of other captures or of none.
#pragma once
#include <driver_types.h>

#include "emulated/streams.h"

namespace tessera::emulated {

struct Graph;  // nodes and their order

cudaError_t begin_capture(Stream* stream);
// Refuses where a stream that joined the capture has nodes that nothing in `stream` waited for.
cudaError_t end_capture(Stream* stream, Graph** graph);
void drop_graph(Graph* graph);
// As of streams.
void check_in_use(const Graph* graph);
Graph* copy_graph(const Graph* graph);
void launch_graph(const Graph* graph, Stream* stream);

// What a host call does to captures: not success where it may not be made now.
cudaError_t refuse_wait(Stream* stream);  // nullptr: for all streams
cudaError_t refuse_unstaged_copy(Stream* stream);
cudaError_t refuse_captured(Event* event);

}  // namespace tessera::emulated
