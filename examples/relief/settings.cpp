#include "examples/relief/settings.h"

#include "examples/relief/data.h"
#include "runtime/error.h"

namespace tessera::relief {

void register_settings(train::Config& config, Settings& s) {
  config.section("Run");
  config.add("steps", &s.steps, "optimizer steps, each on the whole globe").at_least(0);
  config.add("seed", &s.seed, "of the initial weights").at_least(0);
  config.add("mesh", &s.mesh,
             "axes and sizes, such as lat=2,lon=2: the first axis cuts the rows, the second one the columns");
  config.add("device", &s.device, "where tensors live").choices({"cpu", "cuda"});
  config.add("dtype", &s.dtype, "of parameters and activations").choices({"f32", "f64"});
  config.section("Data");
  config.add("data.path", &s.data_path, "etopo5.cdf; empty: where Debian puts it").flag("data");
  config.add("data.reduce", &s.reduce, "rows and columns of the file that become one; 1: full resolution")
      .at_least(1)
      .unit("cells of 5'");
  config.add("data.coarsen", &s.coarsen, "rows and columns of the map that the model must tell apart again")
      .at_least(2)
      .unit("cells");
  config
      .add("data.held_out", &s.held_out,
           "regions that are for the score only: west, east, south, north of each")
      .unit("degrees");
  config.section("Model");
  config.add("model.widths", &s.widths, "channels of each level, the finest first");
  config.add("model.groups", &s.groups, "groups of the norms").at_least(1);
  config.section("Optimizer (AdamW)");
  config.add("optimizer.lr", &s.lr, "peak learning rate").positive();
  config.add("optimizer.weight_decay", &s.weight_decay, "on filters, not on biases and norms").at_least(0);
  config.add("optimizer.beta1", &s.beta1, "decay of the mean of gradients").at_least(0).below(1);
  config.add("optimizer.beta2", &s.beta2, "decay of the mean of their squares").at_least(0).below(1);
  config.add("optimizer.warmup", &s.warmup, "steps of linear warm-up before the cosine")
      .at_least(0)
      .unit("steps");
  config.section("Output");
  config.add("output.dir", &s.out, "folder of metrics.jsonl and the pictures' numbers").flag("out");
  config.add("output.every", &s.every, "steps between progress lines").at_least(1).unit("steps");
  config.add("output.region", &s.region, "which held-out region is drawn, counted from 0").at_least(0);
  config.add("output.trace", &s.trace, "write a trace that opens in Perfetto to this file").flag("trace");
  config.add("output.check_replicas", &s.check_replicas,
             "at the end, check that all ranks hold the same parameters");
}

void check_settings(const Settings& s) {
  TS_CHECK(s.device == "cpu", kProgram, "device {} is not available in this build; cpu is", s.device);
  TS_CHECK(!s.widths.empty() && s.widths.size() <= 12, kProgram, "widths needs 1 to 12 numbers, given {}",
           s.widths.size());
  for (const int width : s.widths)
    TS_CHECK(width >= 1 && width % s.groups == 0, kProgram,
             "width {} must be a positive multiple of groups {}", width, s.groups);
  const auto regions = regions_of(s.held_out);
  TS_CHECK(s.region < static_cast<int>(regions.size()), kProgram,
           "region {} is not among the {} that are held out (0 to {})", s.region, regions.size(),
           regions.size() - 1);
  for (const auto& [name, size] : s.mesh)
    TS_CHECK(name != "ddp", kProgram,
             "mesh axis ddp={} would share out samples, but the whole globe is the only one", size);
}

}  // namespace tessera::relief
