#include "examples/winds/settings.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace tessera::winds {
namespace {

constexpr const char* kProgram = "tessera-winds";
constexpr maps::SettingsTexts kTexts{
    "optimizer steps", "of initial weights, dropout and the order of samples",
    "axes and sizes, such as ddp=2,domain=2: samples are shared out over ddp, maps are cut over the others",
    "on matrices, not on biases and norms"};

}  // namespace

void register_settings(train::Config& config, Settings& s) {
  register_run(config, s, kTexts);
  config.add("batch", &s.batch, "samples per step over all ranks").at_least(1);
  config.section("Data");
  config.add("data.path", &s.data_path, "monthly_navy_winds.cdf; empty: where Debian puts it")
      .flag("data")
      .own_of_rank();
  config.add("data.held_out", &s.held_out, "months at the end that are for the score only")
      .at_least(1)
      .unit("months");
  config.section("Model");
  config.add("model.patch", &s.patch, "rows and columns of a patch").unit("cells");
  config.add("model.width", &s.width, "features per token").at_least(1);
  config.add("model.depth", &s.depth, "transformer blocks").at_least(1).at_most(10000);
  config.add("model.heads", &s.heads, "attention heads").at_least(1);
  config.add("model.mlp_ratio", &s.mlp_ratio, "hidden width of the MLP, in widths").positive().at_most(1024);
  config.add("model.dropout", &s.dropout, "probability that an activation is dropped").at_least(0).below(1);
  register_optimizer(config, s, kTexts);
  register_output(config, s);
  config.add("output.month", &s.month, "held-out month on the map, counted from January 1980").at_least(0);
}

void check_settings(const Settings& s) {
  check_training(kProgram, s);
  TS_CHECK(s.patch.size() == 2 && s.patch[0] >= 1 && s.patch[1] >= 1, kProgram,
           "patch needs two numbers of at least 1 (rows, columns), given [{}]", fmt::join(s.patch, ","));
  TS_CHECK(s.width % s.heads == 0, kProgram, "width {} cannot be shared out over {} heads", s.width, s.heads);
}

}  // namespace tessera::winds
