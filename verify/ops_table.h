// What every operation communicates, found by running it: the source of docs/ops.md.
#pragma once
#include <string>
#include <vector>

#include "mesh/device_mesh.h"

namespace tessera::verify {

// One call, in words: inputs as "x 2 4 12 9; i 5 <12; m 4 5 ?" (sizes; "<n": int64 below n; "?": bool),
// arguments as in a case file.
struct TableEntry {
  const char* op;
  const char* inputs;
  const char* args = "{}";
  // Placements of several inputs at once that deserve a line: "a:S1 b:S0, a:P b:P".
  const char* together = "";
};
struct TableFamily {
  const char* title;
  std::vector<TableEntry> entries;
};
const std::vector<TableFamily>& table_families();

// The document. Collective over the mesh (one axis); whole on rank 0, empty elsewhere.
std::string ops_document(const DeviceMesh& mesh);

}  // namespace tessera::verify
