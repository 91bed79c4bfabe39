// Everything that tessera-relief can be told.
#pragma once
#include <string>
#include <vector>

#include "examples/maps/settings.h"

namespace tessera::relief {

struct Settings : maps::TrainingSettings {
  Settings() {
    lr = 2e-3;
    weight_decay = 0.05;
    beta2 = 0.99;
    out = "relief-out";
  }

  std::string data_path;
  int reduce = 5;
  int coarsen = 8;
  std::vector<int> held_out{-80, -50, -30, 0,   70,  100, 15, 45, -135, -105, 30,  60, -45, -15,
                            0,   30,  120, 150, -15, 15,  60, 90, -60,  -30,  -10, 25, 45,  70};

  std::vector<int> widths{16, 32, 64, 96};
  int groups = 8;

  int region = 1;
};

// Registers all options; `settings` must outlive the config.
void register_settings(train::Config& config, Settings& settings);
// What the options allow only together; refuses with one line.
void check_settings(const Settings& settings);

}  // namespace tessera::relief
