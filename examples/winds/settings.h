// Everything that tessera-winds can be told.
#pragma once
#include <string>
#include <vector>

#include "train/config.h"

namespace tessera::winds {

struct Settings {
  int steps = 120;
  int batch = 4;
  std::int64_t seed = 1;
  train::MeshAxes mesh;
  std::string device = "cpu";
  std::string dtype = "f32";

  std::string data_path;
  int held_out = 24;

  std::vector<int> patch{4, 4};
  int width = 96;
  int depth = 4;
  int heads = 4;
  double mlp_ratio = 4.0;
  double dropout = 0.2;

  double lr = 1e-3;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  int warmup = 10;

  std::string out = "winds-out";
  int every = 10;
  int month = 114;
  std::string trace;
  bool check_replicas = false;
};

// Registers all options; `settings` must outlive the config.
void register_settings(train::Config& config, Settings& settings);
// What the options allow only together; refuses with one line.
void check_settings(const Settings& settings);

}  // namespace tessera::winds
