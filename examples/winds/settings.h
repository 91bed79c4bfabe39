// Everything that tessera-winds can be told.
#pragma once
#include <string>
#include <vector>

#include "examples/maps/settings.h"

namespace tessera::winds {

struct Settings : maps::TrainingSettings {
  Settings() { out = "winds-out"; }

  int batch = 4;

  std::string data_path;
  int held_out = 24;

  std::vector<int> patch{4, 4};
  int width = 96;
  int depth = 4;
  int heads = 4;
  double mlp_ratio = 4.0;
  double dropout = 0.2;

  int month = 114;
};

// Registers all options; `settings` must outlive the config.
void register_settings(train::Config& config, Settings& settings);
// What the options allow only together; refuses with one line.
void check_settings(const Settings& settings);

}  // namespace tessera::winds
