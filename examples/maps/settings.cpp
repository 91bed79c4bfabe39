#include "examples/maps/settings.h"

#include "comm/device_link.h"
#include "ops/plan_cache.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace tessera::maps {

void register_run(train::Config& config, TrainingSettings& s, const SettingsTexts& texts) {
  config.section("Run");
  config.add("steps", &s.steps, texts.steps).at_least(0);
  config.add("seed", &s.seed, texts.seed).at_least(0);
  config.add("mesh", &s.mesh, texts.mesh);
  config.add("device", &s.device, "where tensors live").choices({"cpu", "cuda"});
  config
      .add("plan_cache", &s.plan_cache,
           "file in which cuDNN's plans are kept from run to run, with device cuda (empty: "
           "TESSERA_CUDNN_PLANS)")
      .own_of_rank();
  config
      .add("comm", &s.comm,
           "how messages of device memory go, with device cuda; auto: TESSERA_CUDA_COMM, else nccl")
      .choices({"auto", "nccl", "mpi"});
  config.add("cuda_graph", &s.cuda_graph, "capture the step on the device after a few, and replay it");
  config.add("dtype", &s.dtype, "of parameters and activations").choices({"f32", "f64"});
}

void register_optimizer(train::Config& config, TrainingSettings& s, const SettingsTexts& texts) {
  config.section("Optimizer (AdamW)");
  config.add("optimizer.lr", &s.lr, "peak learning rate").positive();
  config.add("optimizer.weight_decay", &s.weight_decay, texts.weight_decay).at_least(0);
  config.add("optimizer.beta1", &s.beta1, "decay of the mean of gradients").at_least(0).below(1);
  config.add("optimizer.beta2", &s.beta2, "decay of the mean of their squares").at_least(0).below(1);
  config.add("optimizer.warmup", &s.warmup, "steps of linear warm-up before the cosine")
      .at_least(0)
      .unit("steps");
}

void register_output(train::Config& config, TrainingSettings& s) {
  config.section("Output");
  config.add("output.dir", &s.out, "folder of metrics.jsonl and the pictures' numbers")
      .flag("out")
      .own_of_rank();
  config.add("output.every", &s.every, "steps between progress lines").at_least(1).unit("steps");
  config.add("output.trace", &s.trace, "write a trace that opens in Perfetto to this file").own_of_rank();
  config.add("output.check_replicas", &s.check_replicas,
             "at the end, check that all ranks hold the same parameters");
}

void check_training(const char* program, const TrainingSettings& s) {
  TS_CHECK(!s.out.empty(), program, "output.dir is empty, it needs a folder (\".\" is this one)");
  require_device(program, device_from_name(program, s.device));
  TS_CHECK(s.plan_cache.empty() || s.device == "cuda", program,
           "plan_cache {} was given, but device {} keeps no plans", s.plan_cache, s.device);
  TS_CHECK(!s.cuda_graph || s.device == "cuda", program,
           "cuda_graph was asked for on device {}, it needs cuda", s.device);
  TS_CHECK(s.comm == "auto" || s.device == "cuda", program,
           "comm {} was given, but it is for messages of device cuda, and the device is {}", s.comm,
           s.device);
}

void set_up_device(const Communicator& world, const TrainingSettings& s) {
  if (!s.plan_cache.empty()) set_plan_cache(s.plan_cache);
  if (s.device == "cuda") check_plan_cache(world);
  if (s.comm != "auto") use_device_links(world, s.comm == "nccl");
}

}  // namespace tessera::maps
