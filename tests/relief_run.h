// A training run of the relief model on the real map, small enough for tests.
#pragma once
#include "examples/maps/files.h"
#include "examples/relief/trainer.h"
#include "tests/support/world.h"

namespace tessera::relief {

// 72 x 144 cells of 2.5 degrees, blocks of 4.
inline Settings small_settings() {
  Settings s;
  s.reduce = 30;
  s.coarsen = 4;
  s.widths = {8, 16, 16};
  s.groups = 4;
  s.steps = 4000;
  s.warmup = 0;
  return s;
}

struct TestRun {
  Settings settings;
  ReliefSource source;
  DeviceMesh mesh;
  maps::MapCut cut;
  ReliefData data;
  Trainer trainer;

  static Settings on_test_device(Settings s) {
    if (test_device() != Device::Cpu) s.device = name_of(test_device());
    return s;
  }
  TestRun(const Communicator& comm, const Settings& s, std::vector<MeshAxis> axes)
      : settings(on_test_device(s)),
        source(source_of(s, maps::find_ferret_file(kProgram, "", kReliefFile))),
        mesh(comm, std::move(axes)),
        cut(maps::cut_map(kProgram, mesh, read_map_shape(source, comm))),
        data(source, cut, comm),
        trainer(settings, data) {}
};

}  // namespace tessera::relief
