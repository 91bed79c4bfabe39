#include <tessera/tessera.h>

#include <algorithm>
#include <cmath>

namespace ts = tessera;

// A map cut over the ranks gives the convolution that one rank gives.
int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int, char**) {
    const ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    ts::Generator random(1);
    const ts::Tensor whole = ts::randn({1, 8, 73, 144}, random);
    const ts::Tensor weight = ts::randn({8, 8, 3, 3}, random);
    const ts::Tensor map = ts::train::scatter(whole, 0, mesh, {ts::Shard(2)});
    const auto got = ts::conv2d(map, weight, {}, {.padding = {1}}).to_vector();
    const auto expected = ts::conv2d(whole, weight, {}, {.padding = {1}}).to_vector();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - expected[i]));
    ts::log_info("{} ranks, largest difference {:.1e}", runtime.size(), worst);
    return worst < 1e-4 ? 0 : 1;
  });
}
