// A training run of the winds model on the real maps, as tests build it.
#pragma once
#include "examples/winds/trainer.h"
#include "tests/support/world.h"

namespace tessera::winds {

struct TestRun {
  Settings settings;
  DeviceMesh mesh;
  GridShape grid;
  MapCut cut;
  WindData data;
  Trainer trainer;

  TestRun(const Settings& s, std::vector<MeshAxis> axes)
      : settings(on_test_device(s)),
        mesh(test_world(), std::move(axes)),
        grid(read_grid_shape(source(), test_world())),
        cut(cut_map(mesh, grid, s.patch)),
        data(source(), cut.region, test_world(), cut.domain.comm()),
        trainer(settings, cut, data) {}

  static Settings on_test_device(Settings s) {
    if (test_device() != Device::Cpu) s.device = name_of(test_device());
    return s;
  }
  static WindSource source() {
    WindSource w;
    w.path = find_wind_file("");
    return w;
  }
};

}  // namespace tessera::winds
