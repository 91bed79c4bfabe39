// Both examples, small enough for the emulated device.
#pragma once
#include "tests/relief_run.h"
#include "tests/winds_run.h"

namespace tessera::device_tests {

inline winds::Settings small_winds(bool graph) {
  winds::Settings s;
  s.width = 8;
  s.depth = 1;
  s.heads = 2;
  s.patch = {16, 24};
  s.batch = 2;
  s.steps = 4000;
  s.cuda_graph = graph;
  return s;
}

inline relief::Settings small_relief(bool graph) {
  relief::Settings s = relief::small_settings();
  s.reduce = 60;
  s.widths = {4, 4};
  s.cuda_graph = graph;
  return s;
}

inline std::vector<MeshAxis> all_ranks() { return {{"domain", test_world().size()}}; }

}  // namespace tessera::device_tests
