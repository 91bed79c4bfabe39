// What every program that learns on maps can be told.
#pragma once
#include <string>

#include "comm/communicator.h"
#include "train/config.h"

namespace tessera::maps {

// The defaults of numbers to learn by are a program's own.
struct TrainingSettings {
  int steps = 120;
  std::int64_t seed = 1;
  train::MeshAxes mesh;
  std::string device = "cpu";
  std::string dtype = "f32";
  std::string plan_cache;
  std::string comm = "auto";
  bool cuda_graph = false;

  double lr = 1e-3;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  int warmup = 10;

  std::string out;
  int every = 10;
  std::string trace;
  bool check_replicas = false;
};

// What the help says otherwise in every program.
struct SettingsTexts {
  const char* steps;
  const char* seed;
  const char* mesh;
  const char* weight_decay;
};

// A section each, to which a program may add options of its own; `settings` must outlive the config.
void register_run(train::Config& config, TrainingSettings& settings, const SettingsTexts& texts);
void register_optimizer(train::Config& config, TrainingSettings& settings, const SettingsTexts& texts);
void register_output(train::Config& config, TrainingSettings& settings);

// Refuses a device that this build or machine does not have, a file of plans, a graph or a way of
// messages for the CPU, and no folder to write to.
void check_training(const char* program, const TrainingSettings& settings);
// Before the first tensor on the device: where its plans are kept, and how messages go between devices.
void set_up_device(const Communicator& world, const TrainingSettings& settings);

}  // namespace tessera::maps
