#include "examples/winds/settings.h"

#include "runtime/error.h"

namespace tessera::winds {

void register_settings(train::Config& config, Settings& s) {
  config.section("Run");
  config.add("steps", &s.steps, "optimizer steps").at_least(0);
  config.add("batch", &s.batch, "samples per step over all ranks").at_least(1);
  config.add("seed", &s.seed, "of initial weights, dropout and the order of samples").at_least(0);
  config.add("mesh", &s.mesh,
             "axes and sizes, such as ddp=2,domain=2: samples are shared out over ddp, maps are cut over the "
             "others");
  config.add("device", &s.device, "where tensors live").choices({"cpu", "cuda"});
  config.add("dtype", &s.dtype, "of parameters and activations").choices({"f32", "f64"});
  config.section("Data");
  config.add("data.path", &s.data_path, "monthly_navy_winds.cdf; empty: where Debian puts it").flag("data");
  config.add("data.held_out", &s.held_out, "months at the end that are for the score only")
      .at_least(1)
      .unit("months");
  config.section("Model");
  config.add("model.patch", &s.patch, "rows and columns of a patch").unit("cells");
  config.add("model.width", &s.width, "features per token").at_least(1);
  config.add("model.depth", &s.depth, "transformer blocks").at_least(1);
  config.add("model.heads", &s.heads, "attention heads").at_least(1);
  config.add("model.mlp_ratio", &s.mlp_ratio, "hidden width of the MLP, in widths").positive();
  config.add("model.dropout", &s.dropout, "probability that an activation is dropped").at_least(0).below(1);
  config.section("Optimizer (AdamW)");
  config.add("optimizer.lr", &s.lr, "peak learning rate").positive();
  config.add("optimizer.weight_decay", &s.weight_decay, "on matrices, not on biases and norms").at_least(0);
  config.add("optimizer.beta1", &s.beta1, "decay of the mean of gradients").at_least(0).below(1);
  config.add("optimizer.beta2", &s.beta2, "decay of the mean of their squares").at_least(0).below(1);
  config.add("optimizer.warmup", &s.warmup, "steps of linear warm-up before the cosine")
      .at_least(0)
      .unit("steps");
  config.section("Output");
  config.add("output.dir", &s.out, "folder of metrics.jsonl and the pictures' numbers").flag("out");
  config.add("output.every", &s.every, "steps between progress lines").at_least(1).unit("steps");
  config.add("output.month", &s.month, "held-out month on the map, counted from January 1980").at_least(0);
  config.add("output.trace", &s.trace, "write a trace that opens in Perfetto to this file").flag("trace");
  config.add("output.check_replicas", &s.check_replicas,
             "at the end, check that all ranks hold the same parameters");
}

void check_settings(const Settings& s) {
  constexpr const char* kProgram = "tessera-winds";
  TS_CHECK(s.device == "cpu", kProgram, "device {} is not available in this build; cpu is", s.device);
  TS_CHECK(s.patch.size() == 2 && s.patch[0] >= 1 && s.patch[1] >= 1, kProgram,
           "patch needs two numbers of at least 1 (rows, columns)");
  TS_CHECK(s.width % s.heads == 0, kProgram, "width {} cannot be shared out over {} heads", s.width, s.heads);
}

}  // namespace tessera::winds
