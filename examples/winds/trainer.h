// Training of a vision transformer on maps that are cut over the ranks.
#pragma once
#include <memory>

#include "examples/maps/map_cut.h"
#include "examples/maps/training.h"
#include "examples/winds/baselines.h"
#include "examples/winds/data.h"
#include "examples/winds/settings.h"
#include "nn/nn.h"
#include "train/data_parallel.h"
#include "train/step_graph.h"

namespace tessera::winds {

using maps::MapCut;
using maps::StepResult;

// Before the winds are read: refuses a batch that is more than all training samples.
void check_batch(const Settings& settings, const GridShape& grid);

// Rows and columns are cut at multiples of the patch; the rows are padded to whole patches by the model.
// Refuses a patch whose columns do not divide the map's or that is taller than the map.
MapCut cut_map(const DeviceMesh& mesh, const GridShape& grid, const std::vector<int>& patch);

// Collective over the mesh, all of it.
class Trainer {
 public:
  Trainer(const Settings& settings, const MapCut& cut, const WindData& data);

  // One optimizer step on the next batch; the loss is the mean over the global batch.
  StepResult step();
  // The same without reading the loss, which nobody waits for: this rank's part of it, valid up to the next
  // step.
  Tensor advance();
  std::int64_t steps_done() const { return done_; }
  nn::ViT& model() { return *model_; }
  train::DataParallel& parallel() { return *parallel_; }

  // Forecasts of held-out months in m/s, this rank's cells: [n, 2, rows, cols].
  Array forecast(std::span<const int> months);
  Score score();
  // The whole map of one field [2, rows, cols] on every rank.
  Array whole_map(const Array& local) const;

 private:
  Tensor as_tensor(const Array& local, std::int64_t channels) const;
  Tensor predict(const Tensor& input);
  void load(Tensor& buffer, const Array& local, std::int64_t channels) const;
  Tensor device_step(const Interval& mine);

  const Settings& settings_;
  const MapCut& cut_;
  const WindData& data_;
  DType dtype_;
  Device device_;
  std::unique_ptr<nn::ViT> model_;
  std::unique_ptr<train::DataParallel> parallel_;
  std::unique_ptr<optim::AdamW> optimizer_;
  optim::Schedule schedule_;
  SampleOrder order_;
  Tensor input_, target_;                    // of the step, in the same memory every time
  std::unique_ptr<train::StepGraph> graph_;  // with cuda_graph
  std::int64_t done_ = 0;
};

}  // namespace tessera::winds
