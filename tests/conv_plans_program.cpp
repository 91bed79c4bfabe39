// Prints what convolutions come to, bit by bit, so that one can see which way they went. Ranks work out the
// same, each for itself.
//
//   conv_plans_program CHANNELS
#include <fmt/format.h>

#include <bit>

#include "autograd/node.h"
#include "ops/ops.h"
#include "runtime/error.h"
#include "train/program.h"

namespace ts = tessera;

namespace {

// Of float32 values in their order (FNV-1a).
std::uint64_t bits_of(const ts::Tensor& t) {
  std::uint64_t h = 14695981039346656037ULL;
  for (const double v : t.to_vector())
    h = (h ^ std::bit_cast<std::uint32_t>(static_cast<float>(v))) * 1099511628211ULL;
  return h;
}

}  // namespace

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int count, char** arguments) {
    TS_CHECK(count == 2, "conv_plans_program", "give it a number of channels");
    const std::int64_t channels = std::stoi(arguments[1]);
    ts::Generator draws(3);
    const ts::Tensor x = ts::randn({2, channels, 20, 20}, draws).set_requires_grad();
    const ts::Tensor w = ts::randn({40, channels, 3, 3}, draws).set_requires_grad();
    const ts::Tensor y = ts::conv2d(x, w, {}, {.padding = {1}});
    const ts::Tensors d = ts::grad({y}, {x, w}, {y.detach()});
    if (runtime.rank() == 0) fmt::print("{:x} {:x} {:x}\n", bits_of(y), bits_of(d[0]), bits_of(d[1]));
    return 0;
  });
}
