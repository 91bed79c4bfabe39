#include "examples/relief/settings.h"

#include "examples/relief/data.h"
#include "runtime/error.h"

namespace tessera::relief {
namespace {

constexpr maps::SettingsTexts kTexts{
    "optimizer steps, each on the whole globe", "of the initial weights",
    "axes and sizes, such as lat=2,lon=2: the first axis cuts the rows, the second one the columns",
    "on filters, not on biases and norms"};

}  // namespace

void register_settings(train::Config& config, Settings& s) {
  register_run(config, s, kTexts);
  config.section("Data");
  config.add("data.path", &s.data_path, "etopo5.cdf; empty: where Debian puts it").flag("data").own_of_rank();
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
  register_optimizer(config, s, kTexts);
  register_output(config, s);
  config.add("output.region", &s.region, "which held-out region is drawn, counted from 0").at_least(0);
}

void check_settings(const Settings& s) {
  check_training(kProgram, s);
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
