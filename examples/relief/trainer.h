// Training of a U-Net on the globe, which is cut over the ranks.
#pragma once
#include <memory>

#include "examples/maps/training.h"
#include "examples/relief/data.h"
#include "examples/relief/settings.h"
#include "nn/nn.h"
#include "train/data_parallel.h"
#include "train/step_graph.h"

namespace tessera::relief {

// The source that the settings ask for.
ReliefSource source_of(const Settings& settings, const std::string& path);

// Collective over the mesh, all of it.
class Trainer {
 public:
  Trainer(const Settings& settings, const ReliefData& data);

  // One optimizer step on the whole globe: as it is, mirrored east to west, north to south, or both, in turn.
  maps::StepResult step();
  // The same without reading the loss, which nobody waits for; valid up to the next step.
  Tensor advance();
  nn::UNet& model() { return *model_; }
  train::DataParallel& parallel() { return *parallel_; }

  // The model's map in m, f64, cut like the truth.
  Tensor heights();

 private:
  Tensor device_step(const Dims& mirrored);

  const ReliefData& data_;
  Tensor inputs_, factor_, goal_;
  std::unique_ptr<nn::UNet> model_;
  std::unique_ptr<train::DataParallel> parallel_;
  std::unique_ptr<optim::AdamW> optimizer_;
  optim::Schedule schedule_;
  std::unique_ptr<train::StepGraph>
      graph_;  // with cuda_graph: one for each way of mirroring, after one step so
  std::int64_t done_ = 0;
};

}  // namespace tessera::relief
